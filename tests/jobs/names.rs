//! Idempotency keys: a request with a key creates one job, however often it is sent.

use std::fs;
use std::thread;

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::service::Service;
use cofferdam_test_support::has;
use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::doors::{job_server, post_to, wait_for_end};
use crate::workspace::{Workspace, with};

fn post(service: &Service, key: &str, request: &Value) -> Answer {
    let headers = format!("idempotency-key: {key}\r\n");
    post_to(service, "/v1/jobs", &headers, request.to_string())
}

fn id_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{answer:?}");
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    body["job_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_repeated_key_returns_the_first_answer_and_another_body_is_a_conflict() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let store = TempDir::new().unwrap();
    let mut service = job_server(store.path()).start();
    let workspace = Workspace::python("print(1)");
    let request = workspace.run_main();
    let first = id_of(&post(&service, "key-1", &request));
    assert_eq!(id_of(&post(&service, "key-1", &request)), first);
    wait_for_end(&service, &first);
    assert_eq!(id_of(&post(&service, "key-1", &request)), first);
    let other = with(request.clone(), "command.stdin", "other");
    let conflict = post(&service, "key-1", &other);
    assert_eq!(conflict.status, 409, "{conflict:?}");
    assert_ne!(id_of(&post(&service, "key-2", &request)), first);
    service.kill();
    drop(service);
    let service = job_server(store.path()).start();
    assert_eq!(id_of(&post(&service, "key-1", &request)), first);
    assert_eq!(post(&service, "key-1", &other).status, 409);
    assert_eq!(fs::read_dir(store.path().join("runs")).unwrap().count(), 2);
}

#[test]
fn concurrent_requests_with_one_key_create_one_job() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let store = TempDir::new().unwrap();
    let service = job_server(store.path()).start();
    let workspace = Workspace::python("print(1)");
    let request = workspace.run_main();
    let ids: Vec<String> = thread::scope(|scope| {
        let posts: Vec<_> =
            (0..16).map(|_| scope.spawn(|| id_of(&post(&service, "key", &request)))).collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(fs::read_dir(store.path().join("runs")).unwrap().count(), 1);
}
