//! What everybody may see of a service with tokens.

use cofferdam::config::{PublicRoutes, Tokens};
use cofferdam::http::{EvaluationHttpSettings, HttpSettings};
use serde_json::{Value, json};

use super::scripted::ScriptedEvaluations;
use super::serve;
use crate::jobs::{get, request};
use crate::support::{ScriptedChecks, settings, start};

const TOKEN: &str = "first-token-0123456789";

fn guarded(public: PublicRoutes) -> HttpSettings {
    let tokens = Tokens::of([("one", TOKEN)]);
    let evaluations = EvaluationHttpSettings { public, ..settings().evaluations };
    HttpSettings { tokens, evaluations, ..settings() }
}

const ALL: PublicRoutes = PublicRoutes { status: true, metrics: true };

#[test]
fn without_a_token_only_the_nine_fields_and_the_six_series_are_shown() {
    let server = serve(&ScriptedEvaluations::new(), guarded(ALL));
    let status = server.ask(get("/status"));
    let body: Value = serde_json::from_str(&status.body).unwrap();
    let expected = json!({
        "version": "0", "uptime_secs": 0, "active_evals": 1, "total_evals": 10, "passed": 5,
        "failed": 3, "cancelled": 2, "capacity": 4, "available_slots": 3,
    });
    assert_eq!((status.status, body), (200, expected));
    let metrics = server.ask(get("/metrics"));
    let series: Vec<&str> = metrics.body.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "term_executor_evaluations_total 10",
        "term_executor_evaluations_passed 5",
        "term_executor_evaluations_failed 3",
        "term_executor_evaluations_cancelled 2",
        "term_executor_evaluations_active 1",
        "term_executor_evaluations_duration_ms_sum 1234",
    ];
    assert_eq!((metrics.status, series), (200, expected.to_vec()));
}

#[test]
fn a_token_shows_everything_and_a_wrong_one_nothing() {
    let server = serve(&ScriptedEvaluations::new(), guarded(ALL));
    let shown = format!("authorization: Bearer {TOKEN}\r\n");
    let status = server.ask(request("GET", "/status", &shown));
    let body: Value = serde_json::from_str(&status.body).unwrap();
    assert!(body["total_evals"] == 10 && body["slots"].is_object(), "{body}");
    let metrics = server.ask(request("GET", "/metrics", &shown)).body;
    for line in [
        "cofferdam_evaluations_total{verdict=\"partial\"} 1",
        "cofferdam_cache_hits_total{kind=\"bases\"} 0",
        "cofferdam_cache_misses_total{kind=\"mirrors\"} 0",
        "cofferdam_cache_bytes{kind=\"archives\"} 4096",
        "term_executor_evaluations_active 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    assert!(metrics.contains("cofferdam_evaluation_phase_seconds_count{step="), "{metrics}");
    for target in ["/status", "/metrics"] {
        let wrong = "authorization: Bearer wrong\r\n";
        assert_eq!(server.ask(request("GET", target, wrong)).status, 401);
        assert_eq!(server.ask(request("POST", target, "content-length: 0\r\n")).status, 401);
    }
}

#[test]
fn the_operator_decides_what_is_public() {
    let none = serve(&ScriptedEvaluations::new(), guarded(PublicRoutes::default()));
    let one = PublicRoutes { status: true, metrics: false };
    let one = serve(&ScriptedEvaluations::new(), guarded(one));
    let without = start(ScriptedChecks::echo(), guarded(ALL));
    let statuses = |server: &crate::support::Running| {
        ["/status", "/metrics"].map(|at| server.ask(get(at)).status)
    };
    assert_eq!(statuses(&none), [401, 401]);
    assert_eq!(statuses(&one), [200, 401]);
    assert_eq!(statuses(&without), [401, 401]);
}

#[test]
fn without_tokens_everything_is_shown() {
    let server = serve(&ScriptedEvaluations::new(), settings());
    let status: Value = serde_json::from_str(&server.ask(get("/status")).body).unwrap();
    assert!(status["slots"].is_object() && status["available_slots"] == 3, "{status}");
    assert!(server.ask(get("/metrics")).body.contains("cofferdam_slots "));
}
