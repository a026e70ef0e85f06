//! How soon a DELETE ends an evaluation, at each step.

use std::time::Instant;

use cofferdam_test_server::service::wait_until;
use serde_json::Value;

use super::scene::{Evaluations, PATIENCE, agent};
use crate::report::Report;
use crate::stats::{Spread, as_millis, median};

/// Where the evaluation waits, and the files and the agent that make it wait there.
const WAITS: [(&str, &str, &str, &str); 3] = [
    ("installing_deps", "files: files\ninstall: [sleep 600]\n", "exit 0\n", ":"),
    ("running_agent", "files: files\n", "exit 0\n", "sleep 600"),
    ("running_tests", "files: files\n", "sleep 600\n", ":"),
];

pub fn measure(report: &mut Report) {
    let scene = Evaluations::start();
    let mut taken = Vec::new();
    for (step, description, test, script) in WAITS {
        let files = [
            ("workspace.yaml", description),
            ("prompt.md", ""),
            ("files/a", "1\n"),
            ("tests/fail_to_pass_1.sh", test),
        ];
        let body = agent(&scene.serve(step, &files), script);
        for _ in 0..report.pairs.div_ceil(10) {
            taken.push(end(&scene, &body, step));
        }
    }
    // The longest counts.
    let longest = taken.iter().copied().fold(0.0, f64::max);
    let spread = Spread::of(std::iter::once(longest));
    report.row("evaluation_delete", longest, median(taken.iter().copied()), spread);
}

/// From the DELETE to the end of the evaluation at `step`, milliseconds.
fn end(scene: &Evaluations, body: &Value, step: &str) -> f64 {
    let id = scene.begin(body);
    wait_until(step, PATIENCE, || scene.result(&id)["step"] == step);
    let began = Instant::now();
    let deleted = scene.ask("DELETE", &format!("/evaluate/{id}"), "");
    assert_eq!(deleted.status, 202, "{deleted:?}");
    wait_until("the end", PATIENCE, || scene.result(&id)["verdict"] == "cancelled");
    as_millis(began.elapsed())
}
