//! `/evaluate` and `/evaluations` over scripted evaluations.

mod events;
mod public;
mod routes;
mod scripted;

use std::sync::Arc;

use cofferdam::http::HttpSettings;

use crate::support::{Running, ScriptedChecks, start_all};
use scripted::ScriptedEvaluations;

/// A small request.
const EVALUATION: &str = r#"{"agent_code":"x","task_url":"https://h/t.tar.gz"}"#;

fn serve(evaluations: &Arc<ScriptedEvaluations>, settings: HttpSettings) -> Running {
    start_all(ScriptedChecks::echo(), None, Some(evaluations.clone()), settings)
}

/// A `POST` of `body` with `headers` (whole lines) and its length.
fn post_to(target: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n{body}")
}
