//! Metrics of the engine: sessions, kernels, snapshots and forks.

use std::time::Duration;

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use serde_json::{Value, json};

use crate::jobs::{is_privileged, post_to, with_jobs};
use crate::scrape;

/// How long a killed program may take to die on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Posts to the engine, which must agree, and returns the answer.
#[track_caller]
fn post(service: &Service, target: &str, body: &Value) -> Value {
    let answer = post_to(service, target, &body.to_string());
    assert!((200..300).contains(&answer.status), "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// The sessions that run, the live kernels, the snapshots and the forks so far.
fn figures(service: &Service) -> [f64; 4] {
    let scraped = scrape(service);
    ["sessions", "kernels", "snapshots", "workspaces_forked_total"]
        .map(|name| scraped.get(&format!("cofferdam_{name}"), &[]))
}

#[test]
fn sessions_kernels_snapshots_and_forks_are_counted() {
    if !is_privileged() {
        return;
    }
    let setup = Setup::shell().env("ENGINE_KERNELS_MAX", "5").env("ENGINE_SNAPSHOTS_MAX", "7");
    let (service, _store) = with_jobs(setup);
    let maxima = ["kernels", "snapshots"]
        .map(|name| scrape(&service).get(&format!("cofferdam_{name}_max"), &[]));
    assert_eq!((maxima, figures(&service)), ([5.0, 7.0], [0.0; 4]));

    let workspace = post(&service, "/v1/workspaces", &json!({}));
    let path = format!("/v1/workspaces/{}", workspace["workspace_id"].as_str().unwrap());
    let program = json!({"cmd": "sleep", "args": ["1000"]});
    let session = post(&service, &format!("{path}/sessions"), &program);
    assert_eq!(figures(&service), [1.0, 0.0, 0.0, 0.0]);
    post(&service, &format!("{path}/contexts"), &json!({"language": "python"}));
    assert_eq!(figures(&service), [1.0, 1.0, 0.0, 0.0]);
    // An ended session can be read, and is not counted.
    let session = session["session_id"].as_str().unwrap();
    post(&service, &format!("{path}/sessions/{session}/kill"), &json!({"grace_ms": 1}));
    assert_eq!(figures(&service), [0.0, 1.0, 0.0, 0.0]);
    let snapshot = post(&service, &format!("{path}/snapshot"), &json!({}));
    assert_eq!(figures(&service), [0.0, 1.0, 1.0, 0.0]);
    post(&service, &format!("{path}/fork"), &json!({}));
    post(&service, "/v1/workspaces", &json!({"snapshot": snapshot["snapshot_id"]}));
    assert_eq!(figures(&service), [0.0, 1.0, 1.0, 2.0]);
    assert_eq!(scrape(&service).get("cofferdam_workspaces_created_total", &[]), 3.0);

    let delete = |target: &str| service.ask(request("DELETE", target, "")).status;
    let snapshot = snapshot["snapshot_id"].as_str().unwrap();
    assert_eq!(delete(&format!("/v1/snapshots/{snapshot}")), 204);
    assert_eq!(delete(&path), 200);
    wait_until("the kernel's end", PATIENCE, || figures(&service) == [0.0, 0.0, 0.0, 2.0]);
}
