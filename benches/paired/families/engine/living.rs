//! A command in a sandbox that lives as long as its workspace, compared with one in a fresh sandbox.

use cofferdam_test_server::service::Setup;
use serde_json::json;

use super::scene::Engine;
use crate::report::Report;
use crate::stats::Pairs;

pub fn measure(report: &mut Report) {
    // Fresh sandboxes: created for their program, and prepared.
    for (key, standby_max) in [("engine_living_new", "0"), ("engine_living_prepared", "8")] {
        let mut engine = Engine::start(Setup::shell().env("STANDBY_MAX", standby_max));
        let answer = engine.ask("POST", "/v1/workspaces", r#"{"sandbox":"workspace"}"#);
        if answer.status != 201 {
            report.fail(key, &format!("no living sandbox: {} {}", answer.status, answer.body));
            continue;
        }
        let created: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let living = format!("/v1/workspaces/{}", created["workspace_id"].as_str().unwrap());
        let fresh = engine.create(&json!({}));
        let mut living = engine.program(&living, "/bin/true", &[]);
        let mut fresh = engine.program(&fresh, "/bin/true", &[]);
        report.paired(key, &Pairs::take(report.pairs, || living.millis(), || fresh.millis()));
    }
}
