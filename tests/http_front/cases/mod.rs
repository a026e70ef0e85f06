//! `/v1/cases` over scripted runs of Cases.

mod events;
mod routes;
mod scripted;

use std::sync::Arc;

use cofferdam::http::HttpSettings;

use crate::support::{Running, ScriptedChecks, start_services};
use scripted::ScriptedCases;

fn serve(cases: &Arc<ScriptedCases>, settings: HttpSettings) -> Running {
    start_services(ScriptedChecks::echo(), settings, |services| {
        services.cases = Some(cases.clone());
    })
}

/// A `POST` of `body` to `target` with `headers` (whole lines) and its length.
fn post_to(target: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head =
        format!("POST {target} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}
