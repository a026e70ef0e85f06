//! Runs that are submitted, followed and read.

use std::fs;

use cofferdam_test_server::client::request;
use serde_json::{Value, json};

use super::scene::{
    CASE, ONE, Scene, TWO, archive_of_case, error, follow, get, get_json, post, submit,
};

/// The events of a stream: name, id and data.
fn events(stream: &str) -> Vec<(String, u64, Value)> {
    let blocks = stream.split_terminator("\n\n").filter(|block| !block.starts_with("event: ping"));
    blocks
        .map(|block| {
            let lines: Vec<&str> = block.lines().collect();
            let field = |index: usize, name: &str| lines[index].strip_prefix(name).unwrap();
            let id = field(1, "id: ").parse().unwrap();
            let data = serde_json::from_str(field(2, "data: ")).unwrap();
            (field(0, "event: ").to_owned(), id, data)
        })
        .collect()
}

#[test]
fn a_case_is_run_by_its_path_and_read_by_its_token_alone() {
    let Some(scene) = Scene::new() else { return };
    let request_body = scene.write_case("fix-add", CASE);
    let service = scene.start();
    let id = submit(&service, "/v1/cases", request_body.to_string());
    let stream = follow(&service, &id, "");
    let events = events(&stream);
    let ids: Vec<u64> = events.iter().map(|(_, id, _)| *id).collect();
    assert_eq!(ids, (1..=events.len() as u64).collect::<Vec<_>>(), "{stream}");
    let names: Vec<&str> = events.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"status"), Some(&"result")), "{stream}");
    assert_eq!(events[0].2["status"], "queued");
    assert_eq!(names.iter().filter(|name| **name == "result").count(), 1);
    assert!(names.iter().filter(|name| **name == "cell").count() >= 2, "{stream}");
    for last in 0..events.len() {
        let rest = follow(&service, &id, &format!("last-event-id: {last}\r\n"));
        assert!(stream.ends_with(&rest) && self::events(&rest).len() == events.len() - last);
    }
    let view = get_json(&service, &format!("/v1/cases/{id}"));
    assert_eq!(view, events.last().unwrap().2);
    assert_eq!((&view["run_id"], &view["status"]), (&json!(id), &json!("done")));
    assert_eq!((&view["cells"]["done"], &view["passed"]), (&json!(2), &json!(1)));
    let results = get_json(&service, &format!("/v1/cases/{id}/results"));
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let path = scene.run_dir(&id).join("cells").join(cell["id"].as_str().unwrap());
        let on_disk = fs::read(path.join("result.json")).unwrap();
        assert_eq!(*cell, serde_json::from_slice::<Value>(&on_disk).unwrap());
    }
    let junit = get(&service, &format!("/v1/cases/{id}/junit.xml"));
    assert_eq!(junit.body.matches("<testcase ").count(), 2, "{}", junit.body);
    let report = get(&service, &format!("/v1/cases/{id}/report.html"));
    assert!(report.body.contains("fix-add") && !report.body.contains("<script"));
    let policy = report.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("sandbox"), "{policy}");
    assert_only_for_its_token(&service, &id);
    let again = post(&service, &format!("/v1/cases/{id}/cancel"), ONE, "");
    error(&again, 409, "case.conflict");
    drop(service);
    scene.assert_nothing_left();
}

#[track_caller]
fn assert_only_for_its_token(service: &cofferdam_test_server::service::Service, id: &str) {
    for path in ["", "/results", "/junit.xml", "/report.html", "/events"] {
        let target = format!("/v1/cases/{id}{path}");
        error(&service.ask(request("GET", &target, TWO)), 404, "case.not_found");
        error(&service.ask(request("GET", &target, "")), 401, "auth.required");
    }
    error(&post(service, &format!("/v1/cases/{id}/cancel"), TWO, ""), 404, "case.not_found");
    let listed = get_json(service, "/v1/cases?status=done&limit=1");
    assert_eq!(listed["runs"][0]["run_id"], json!(id));
    let other = service.ask(request("GET", "/v1/cases", TWO));
    assert_eq!(other.body, r#"{"runs":[],"next_cursor":null}"#);
}

#[test]
fn a_case_is_run_from_an_archive_with_the_cells_of_the_query() {
    let Some(scene) = Scene::new() else { return };
    let service = scene.start();
    let query = "/v1/cases?harnesses=mine&trials=2";
    for (kind, top) in [("tar.gz", ""), ("zip", "fix/")] {
        let id = submit(&service, query, archive_of_case(kind, top, CASE));
        follow(&service, &id, "");
        let view = get_json(&service, &format!("/v1/cases/{id}"));
        assert_eq!(view["cells"]["done"], 2, "{kind}: {view}");
        assert_eq!((&view["passed"], &view["not_passed"]), (&json!(2), &json!(0)), "{view}");
    }
    let status: Value = serde_json::from_str(&get(&service, "/status").body).unwrap();
    assert_eq!(status["cases"]["running"], 0, "{status}");
    let metrics = get(&service, "/metrics").body;
    assert!(metrics.contains("\ncofferdam_cells_total{result=\"passed\"} 4\n"), "{metrics}");
}

#[test]
fn the_same_key_and_request_is_one_run() {
    let Some(scene) = Scene::new() else { return };
    let body = scene.write_case("fix-add", CASE);
    let service = scene.start();
    let keyed = format!("{ONE}idempotency-key: mine\r\n");
    let first = post(&service, "/v1/cases", &keyed, body.to_string());
    let again = post(&service, "/v1/cases", &keyed, body.to_string());
    assert_eq!((first.status, first.body.as_str()), (202, again.body.as_str()));
    let other = json!({ "path": body["path"], "trials": 2 }).to_string();
    error(&post(&service, "/v1/cases", &keyed, other), 409, "case.conflict");
    let of_two = format!("{TWO}idempotency-key: mine\r\n");
    let of_two = post(&service, "/v1/cases", &of_two, body.to_string());
    assert_eq!(of_two.status, 202, "{of_two:?}");
    assert_ne!(of_two.body, first.body);
    assert_eq!(scene.runs(), 2);
    let first: Value = serde_json::from_str(&first.body).unwrap();
    follow(&service, first["run_id"].as_str().unwrap(), "");
}

#[test]
fn without_cases_there_are_no_routes() {
    let Some(scene) = Scene::new() else { return };
    let body = scene.write_case("fix-add", CASE);
    let service = scene.setup().env("CASES", "off").start();
    error(&post(&service, "/v1/cases", ONE, body.to_string()), 404, "job.not_found");
    error(&service.ask(request("GET", "/v1/cases", ONE)), 404, "job.not_found");
    assert!(get_json(&service, "/status").get("cases").is_none());
}
