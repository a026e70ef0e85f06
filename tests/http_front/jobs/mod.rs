//! `/v1/jobs` against well-behaved and hostile clients.

mod downloads;
mod events;
mod routes;
pub mod scripted;

use std::sync::Arc;

use cofferdam::http::HttpSettings;
use serde_json::Value;

use crate::support::{Answer, Running, ScriptedChecks, settings, start_with};
use scripted::ScriptedJobs;

/// A request without a body.
pub fn request(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

pub fn get(target: &str) -> String {
    request("GET", target, "")
}

/// A submission of `body` with `headers` (whole lines) and its length.
pub fn submission(headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

/// A small job request.
pub const JOB: &str =
    r#"{"workspace":{"source":"local_path","path":"/w"},"command":{"argv":["x"]}}"#;

pub fn serve(jobs: &Arc<ScriptedJobs>, settings: HttpSettings) -> Running {
    start_with(ScriptedChecks::echo(), Some(jobs.clone()), settings)
}

pub fn serve_plainly(jobs: &Arc<ScriptedJobs>) -> Running {
    serve(jobs, settings())
}

/// Returns the answer's body; asserts that it is a job error with this status and code.
#[track_caller]
pub fn assert_error(answer: &Answer, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    let error: Value = serde_json::from_str(&answer.body).expect(&answer.body);
    let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["code", "details", "message"], "{answer:?}");
    assert_eq!(error["code"], code, "{answer:?}");
    assert!(error["message"].as_str().is_some_and(|words| !words.is_empty()), "{answer:?}");
    assert!(error["details"].is_object(), "{answer:?}");
    error
}
