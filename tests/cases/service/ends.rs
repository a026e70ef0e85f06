//! Runs that wait, are canceled, or outlive the service.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::scene::{ONE, PATIENCE, Scene, error, follow, get_json, post, submit, wait_for_run};
use crate::conformance::doors::alive_with;

/// A Case whose agent sleeps for so many seconds, which are also its marker.
fn sleeper(id: &str, seconds: &str, trials: u32) -> String {
    format!(
        "id: {id}\ntask: {{prompt: p}}\n\
         harnesses: {{mine: {{kind: command, argv: [sh, -c, \"sleep {seconds} & wait\"]}}}}\n\
         matrix: {{harnesses: [mine], models: [m], trials: {trials}}}\n\
         graders: [{{type: command, cmd: 'true'}}]\n"
    )
}

#[test]
fn a_run_is_canceled_where_it_waits_and_where_it_runs_and_leaves_nothing() {
    const MARKER: &str = "86401.1357";
    let Some(scene) = Scene::new() else { return };
    let body = scene.write_case("sleep", &sleeper("sleep", MARKER, 2)).to_string();
    let service = scene.setup().env("CASES_WORKERS", "1").env("CASES_QUEUE_MAX", "1").start();
    let running = submit(&service, "/v1/cases", &body);
    wait_until("the agent", PATIENCE, || !alive_with(MARKER).is_empty());
    let waiting = submit(&service, "/v1/cases", &body);
    let full = post(&service, "/v1/cases", ONE, &body);
    error(&full, 503, "queue.full");
    assert!(full.header("retry-after").is_some(), "{full:?}");
    assert_eq!(scene.runs(), 2, "what was refused is left");
    let canceled = post(&service, &format!("/v1/cases/{waiting}/cancel"), ONE, "");
    assert_eq!(canceled.status, 202, "{canceled:?}");
    let view = get_json(&service, &format!("/v1/cases/{waiting}"));
    assert_eq!((&view["status"], &view["started_at"]), (&json!("canceled"), &Value::Null));
    let canceled = post(&service, &format!("/v1/cases/{running}/cancel"), ONE, "");
    assert_eq!(canceled.status, 202, "{canceled:?}");
    wait_until("the end of the agent", Duration::from_secs(20), || alive_with(MARKER).is_empty());
    let events = follow(&service, &running, "");
    assert!(events.contains("event: result\n") && events.contains("\"canceled\""), "{events}");
    let view = wait_for_run(&service, &running, "canceled", |view| view["status"] == "canceled");
    assert_eq!((&view["cells"]["done"], &view["cells"]["running"]), (&json!(0), &json!(0)));
    error(&post(&service, &format!("/v1/cases/{running}/cancel"), ONE, ""), 409, "case.conflict");
    assert_eq!(
        get_json(&service, "/v1/cases?status=canceled")["runs"].as_array().unwrap().len(),
        2
    );
    drop(service);
    scene.assert_nothing_left();
}

/// The results of a run that are done, by path.
fn done(scene: &Scene, id: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let cells = fs::read_dir(scene.run_dir(id).join("cells")).into_iter().flatten().flatten();
    let results = cells.map(|cell| cell.path().join("result.json"));
    let results = results.filter_map(|path| fs::read(&path).ok().map(|bytes| (path, bytes)));
    let is_done =
        |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["status"] == "done";
    results.filter(|(_, bytes)| is_done(bytes)).collect()
}

#[test]
fn a_service_that_is_killed_resumes_its_runs_and_loses_no_result() {
    const MARKER: &str = "0.71357";
    const CELLS: usize = 8;
    let Some(scene) = Scene::new() else { return };
    let body = scene.write_case("sleep", &sleeper("sleep", MARKER, 8)).to_string();
    let mut service = scene.setup().env("CASES_WORKERS", "2").start();
    let id = submit(&service, "/v1/cases", &body);
    let waiting = submit(&service, "/v1/cases", &body);
    wait_until("some results", PATIENCE, || done(&scene, &id).len() >= 2);
    service.kill();
    let before = done(&scene, &id);
    let all = before.len() + done(&scene, &waiting).len();
    assert!(all < 2 * CELLS, "all were done before the kill");
    let service = scene.setup().env("CASES_WORKERS", "2").start();
    for id in [&id, &waiting] {
        let events = follow(&service, id, "");
        assert_eq!(events.matches("event: result\n").count(), 1, "{events}");
        let view = get_json(&service, &format!("/v1/cases/{id}"));
        assert_eq!((&view["status"], &view["cells"]["done"]), (&json!("done"), &json!(CELLS)));
    }
    let after = done(&scene, &id);
    assert_eq!(after.len(), CELLS);
    for (path, bytes) in before {
        assert!(after[&path] == bytes, "{}", path.display());
    }
    assert!(alive_with(MARKER).is_empty(), "{:?}", alive_with(MARKER));
    drop(service);
    scene.assert_nothing_left();
}

#[test]
fn a_service_that_drains_leaves_its_runs_for_the_next_one() {
    const MARKER: &str = "86402.2468";
    let Some(scene) = Scene::new() else { return };
    let body = scene.write_case("sleep", &sleeper("sleep", MARKER, 1)).to_string();
    let mut service = scene.setup().env("SHUTDOWN_GRACE", "100ms").start();
    let id = submit(&service, "/v1/cases", &body);
    wait_until("the agent", PATIENCE, || !alive_with(MARKER).is_empty());
    service.stop();
    assert!(alive_with(MARKER).is_empty(), "{:?}", alive_with(MARKER));
    let service = scene.start();
    wait_until("the agent again", PATIENCE, || !alive_with(MARKER).is_empty());
    let canceled = post(&service, &format!("/v1/cases/{id}/cancel"), ONE, "");
    assert_eq!(canceled.status, 202, "{canceled:?}");
    let events = follow(&service, &id, "");
    assert_eq!(events.matches("event: result\n").count(), 1, "{events}");
    drop(service);
    scene.assert_nothing_left();
}
