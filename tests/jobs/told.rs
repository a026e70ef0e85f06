//! What clients learn of files: no path on the host, and of a changed file only that it differs.

use std::fs;

use cofferdam_test_server::client::request;
use cofferdam_test_support::has;
use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::doors::{job_server, post_job, wait_for_end};
use crate::workspace::{Workspace, with};

#[test]
fn the_path_of_the_store_appears_only_in_the_log() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let store = TempDir::new().unwrap();
    let service = job_server(store.path()).start();
    let workspace = Workspace::python("print(1)");
    let path = store.path().to_str().unwrap();
    for (id, file) in [("a", "result.json"), ("b", "stdout")] {
        assert_eq!(post_job(&service, &with(workspace.run_main(), "job_id", id)).status, 202);
        wait_for_end(&service, id);
        let file = store.path().join(format!("runs/{id}/{file}"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
    }
    for target in ["/v1/jobs/b/events", "/v1/jobs/a"] {
        let answer = service.get(target);
        assert_eq!(answer.status, 500, "{answer:?}");
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(error["code"], "run.io_failed");
        assert!(!answer.body.contains(path), "{answer:?}");
    }
    service.log.wait_for(&format!("{path}/runs/a"));
}

#[test]
fn an_artifact_is_sent_only_if_it_matches_if_match() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let store = TempDir::new().unwrap();
    let service = job_server(store.path()).start();
    let workspace = Workspace::python("open('out', 'w').write('abc')");
    let job = with(workspace.run_main(), "policy.artifacts.include", vec!["out"]);
    assert_eq!(post_job(&service, &with(job, "job_id", "a")).status, 202);
    wait_for_end(&service, "a");
    let target = "/v1/jobs/a/artifacts/out";
    let ask = |method: &str, headers: &str| service.ask(request(method, target, headers));
    let tag = ask("GET", "").header("etag").unwrap().to_owned();
    for (headers, status) in [
        (format!("if-match: {tag}\r\n"), 200),
        (format!("if-match: \"other\", {tag}\r\n"), 200),
        ("if-match: *\r\n".to_owned(), 200),
        ("if-match: \"other\"\r\n".to_owned(), 412),
        (format!("if-match: W/{tag}\r\n"), 412),
        // If-Match precedes every other condition.
        (format!("if-match: \"other\"\r\nif-none-match: {tag}\r\n"), 412),
        (format!("if-match: {tag}\r\nif-none-match: {tag}\r\n"), 304),
        ("if-match: \"other\"\r\nrange: bytes=0-0\r\n".to_owned(), 412),
        (format!("if-match: {tag}\r\nrange: bytes=0-0\r\n"), 206),
    ] {
        let answer = ask("GET", &headers);
        assert_eq!(answer.status, status, "{headers}: {answer:?}");
    }
    let refused = ask("GET", "if-match: \"other\"\r\n");
    let error: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(error["code"], "job.conflict", "{refused:?}");
}
