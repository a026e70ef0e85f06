//! The service around evaluations: health, status, metrics, ids, cancellation, lifetimes.

use std::time::{Duration, Instant};

use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::host::{Footprint, mounts};

use cofferdam_test_server::service::wait_until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{EvaluationScene, PATIENCE, WANTS_DONE, shell_agent};

/// The mounts that this test sees.
fn host_mounts() -> usize {
    mounts(i32::try_from(std::process::id()).unwrap())
}

#[test]
fn b1_health_is_open_and_json_for_who_asks_for_it() {
    let scene = EvaluationScene::with(&[("AUTH_TOKEN", "the-only-token-of-this-service")]);
    let ask = "GET /health HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n";
    let answer = scene.service.ask(ask);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"status":"ok"}"#));
}

#[test]
fn b2_the_status_of_an_idle_service_has_the_seeds_fields() {
    let scene = EvaluationScene::with(&[("MAX_CONCURRENT_EVALS", "3")]);
    let status: Value = serde_json::from_str(&scene.service.get("/status").body).unwrap();
    for field in ["active_evals", "total_evals", "passed", "failed", "cancelled"] {
        assert_eq!(status[field], 0, "{field}: {status}");
    }
    assert_eq!((&status["capacity"], &status["available_slots"]), (&json!(3), &json!(3)));
    assert!(status["version"].is_string() && status["uptime_secs"].is_u64(), "{status}");
}

#[test]
fn b2_without_the_token_status_has_only_the_seeds_fields() {
    let scene = EvaluationScene::with(&[("AUTH_TOKEN", "the-only-token-of-this-service")]);
    let status: Value = serde_json::from_str(&scene.service.get("/status").body).unwrap();
    let mut keys: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let seed = [
        "active_evals",
        "available_slots",
        "cancelled",
        "capacity",
        "failed",
        "passed",
        "total_evals",
        "uptime_secs",
        "version",
    ];
    assert_eq!(keys, seed);
    let closed = [("AUTH_TOKEN", "the-only-token-of-this-service"), ("AUTH_PUBLIC", "none")];
    let scene = EvaluationScene::with(&closed);
    assert_eq!(scene.service.get("/status").status, 401);
    assert_eq!(scene.service.get("/metrics").status, 401);
}

#[test]
fn b3_the_series_of_the_seed_count_evaluations() {
    let scene = EvaluationScene::new();
    let url = scene.serve(&WANTS_DONE);
    scene.agent(&url, "touch done");
    scene.agent(&url, ":");
    let answer = scene.service.get("/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("text/plain"), "{}", answer.head);
    for (series, value) in
        [("total", 2), ("passed", 1), ("failed", 1), ("cancelled", 0), ("active", 0)]
    {
        let line = format!("\nterm_executor_evaluations_{series} {value}\n");
        assert!(answer.body.contains(&line), "{line}: {}", answer.body);
        let help = format!("# HELP term_executor_evaluations_{series} ");
        let kind = format!("# TYPE term_executor_evaluations_{series} ");
        assert!(answer.body.contains(&help) && answer.body.contains(&kind), "{}", answer.body);
    }
    assert!(
        answer.body.contains("cofferdam_evaluations_total{verdict=\"resolved\"} 1"),
        "{}",
        answer.body
    );
    let parsed = Exposition::parse(&answer.body);
    assert!(parsed.get("term_executor_evaluations_duration_ms_sum", &[]) > 0.0);
}

#[test]
fn b39_an_id_that_is_none_is_not_found() {
    let scene = EvaluationScene::new();
    for id in
        ["0e8e1f84-7c6f-4a55-9d6c-0c4a1f1d2b3c", "..", "..%2f..%2fetc", "a%00b", "x/y", "%2e%2e"]
    {
        let answer = scene.ask("GET", &format!("/evaluate/{id}"), "");
        assert_eq!(answer.status, 404, "{id}: {answer:?}");
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(error["code"].is_string(), "{error}");
    }
    let unknown = scene.ask("GET", "/evaluate/0e8e1f84-7c6f-4a55-9d6c-0c4a1f1d2b3c", "");
    assert!(unknown.body.contains("\"evaluate.not_found\""), "{unknown:?}");
}

#[test]
fn b40_an_evaluation_ends_with_its_session_and_its_result_stays() {
    let scene = EvaluationScene::with(&[("SESSION_TTL_SECS", "2")]);
    let result = scene.agent(&scene.serve(&WANTS_DONE), "sleep 600");
    let seen = ["verdict", "status", "passed"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("timed_out"), json!("cancelled"), Value::Null], "{result:#}");
    assert_eq!(result["failure"]["code"], "session.expired", "{result:#}");
    assert_eq!(scene.leftovers(), Vec::<std::path::PathBuf>::new());
    assert_eq!(scene.result(result["eval_id"].as_str().unwrap()), result);
}

#[test]
fn b41_a_delete_ends_an_evaluation_within_a_second_at_any_step() {
    let scene = EvaluationScene::new();
    let install = "files: files\ninstall: [sleep 600]\n";
    let [_, prompt, file, test] = WANTS_DONE;
    let sleeps = ("tests/fail_to_pass_1.sh", "sleep 600\n");
    for (step, url, script) in [
        ("downloading_task", scene.url("slow"), ":"),
        ("installing_deps", scene.serve(&[("workspace.yaml", install), prompt, file, test]), ":"),
        ("running_agent", scene.serve(&WANTS_DONE), "sleep 600"),
        ("running_tests", scene.serve(&[WANTS_DONE[0], prompt, file, sleeps]), ":"),
    ] {
        let id = scene.begin(&shell_agent(&url, script));
        scene.wait(&id, |result| result["step"] == step);
        let began = Instant::now();
        let target = format!("/evaluate/{id}");
        let deleted = scene.ask("DELETE", &target, "");
        assert_eq!(deleted.status, 202, "{deleted:?}");
        let result = scene.end(&id);
        let took = began.elapsed();
        assert_eq!((&result["verdict"], &result["passed"]), (&json!("cancelled"), &Value::Null));
        assert_eq!((&result["status"], &result["step"]), (&json!("cancelled"), &json!(step)));
        assert!(took < Duration::from_secs(1), "{step}: {took:?}");
        let again = scene.ask("DELETE", &target, "");
        assert_eq!(again.status, 200, "{again:?}");
    }
    let status: Value = serde_json::from_str(&scene.service.get("/status").body).unwrap();
    assert_eq!((&status["cancelled"], &status["active_evals"]), (&json!(4), &json!(0)), "{status}");
}

#[test]
fn b42_a_stopped_service_cancels_what_runs() {
    let mut scene = EvaluationScene::with(&[("SHUTDOWN_GRACE", "1s")]);
    let url = scene.serve(&WANTS_DONE);
    let id = scene.begin(&shell_agent(&url, "sleep 600"));
    scene.wait(&id, |result| result["step"] == "running_agent");
    let footprint = Footprint::of(scene.service.pid());
    scene.service.signal(Signal::SIGTERM);
    scene.service.wait_end(PATIENCE);
    wait_until("the end of the cgroups", PATIENCE, || footprint.is_gone());
    scene.start_again();
    assert_eq!(scene.result(&id)["verdict"], "cancelled");
}

#[test]
fn b42_a_killed_service_leaves_nothing_and_says_what_was_interrupted() {
    let mut scene = EvaluationScene::new();
    let url = scene.serve(&WANTS_DONE);
    let ended = scene.agent(&url, "touch done");
    let before = host_mounts();
    let id = scene.begin(&shell_agent(&url, "sleep 600"));
    scene.wait(&id, |result| result["step"] == "running_agent");
    let footprint = Footprint::of(scene.service.pid());
    scene.service.kill();
    scene.start_again();
    wait_until("the end of the cgroups", PATIENCE, || footprint.is_gone());
    assert_eq!(scene.result(ended["eval_id"].as_str().unwrap()), ended);
    let result = scene.result(&id);
    let seen = ["verdict", "status", "passed"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("infra_error"), json!("failed"), Value::Null], "{result:#}");
    assert_eq!(result["failure"]["code"], "evaluation.interrupted", "{result:#}");
    assert_eq!(scene.leftovers(), Vec::<std::path::PathBuf>::new());
    assert_eq!(host_mounts(), before);
}
