//! Programs in workspaces compared with plain runs of the same programs, and the creation of a workspace.

use cofferdam_test_server::host::tenants;
use cofferdam_test_server::service::Setup;
use serde_json::json;

use super::scene::Engine;
use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, Spread, median, millis};

/// The row, the recipe of the plain run, and the program in the workspace.
const PROGRAMS: [(&str, &str, &str, &[&str]); 3] = [
    ("engine_run_true", "/bin/true", "/bin/true", &[]),
    ("engine_run_sh", "/bin/sh -c :", "/bin/sh", &["-c", ":"]),
    ("engine_run_python", "python3 -c pass", "python3", &["-c", "pass"]),
];
const LIMIT_MS: u32 = 300;
/// Leaves processes in sessions of their own, which hold the output open.
const STRAYS: &str = "for i in 1 2 3 4 5 6 7 8; do setsid sleep 60 & done; (sleep 60 &); sleep 60";

pub fn measure(report: &mut Report) {
    for (key, recipe, cmd, args) in PROGRAMS {
        let mut engine = Engine::start(Setup::of(bare::workspace(recipe, 10, 4096)));
        let mut plain = Runner::of(&engine.service);
        let workspace = engine.create(&json!({}));
        let mut program = engine.program(&workspace, cmd, args);
        let plain = || millis(|| _ = plain.run());
        report.paired(key, &Pairs::take(report.pairs, || program.millis(), plain));
    }
    create(report);
    time_limit(report);
}

fn create(report: &mut Report) {
    let mut engine = Engine::start(Setup::shell());
    let mut pairs = Pairs::default();
    for pair in 0..=report.pairs {
        let mut created = None;
        let made = millis(|| created = Some(engine.ask("POST", "/v1/workspaces", "{}")));
        let asked = millis(|| _ = engine.ask("GET", "/health", ""));
        let created = created.unwrap();
        assert_eq!(created.status, 201, "{created:?}");
        let id: serde_json::Value = serde_json::from_str(&created.body).unwrap();
        engine.delete(&format!("/v1/workspaces/{}", id["workspace_id"].as_str().unwrap()));
        if pair > 0 {
            pairs.push(made, asked);
        }
    }
    report.row("engine_create", pairs.first(), pairs.second(), pairs.firsts());
}

/// The answer comes when everything is dead.
fn time_limit(report: &mut Report) {
    let mut engine = Engine::start(Setup::shell());
    let workspace = engine.create(&json!({}));
    let body = json!({"cmd": "sh", "args": ["-c", STRAYS], "timeout_ms": LIMIT_MS});
    let body = body.to_string();
    let taken: Vec<f64> = (0..report.pairs)
        .map(|_| {
            let mut answer = None;
            let target = format!("{workspace}/run");
            let took = millis(|| answer = Some(engine.ask("POST", &target, &body)));
            let answer = answer.unwrap();
            assert!(answer.body.contains(r#""timed_out":true"#), "{answer:?}");
            assert!(tenants(engine.service.pid()).is_empty(), "a process has outlived its limit");
            took
        })
        .collect();
    let late = Spread::of(taken.iter().map(|took| took - f64::from(LIMIT_MS)));
    let middle = median(taken.into_iter());
    report.row("engine_time_limit", middle, f64::from(LIMIT_MS), late);
}
