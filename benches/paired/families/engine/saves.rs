//! A save after a small change in a large workspace.

use std::fs;

use cofferdam_test_server::service::Setup;
use serde_json::json;

use super::scene::Engine;
use crate::report::Report;
use crate::stats::{Spread, median};

const KEY: &str = "engine_save";
const MB: f64 = 1e6;

pub fn measure(report: &mut Report) {
    // The service saves nothing by itself meanwhile.
    let mut engine = Engine::start(Setup::shell().env("ENGINE_SAVE_EVERY", "1h"));
    let body = json!({"policy": {"persist": true, "max_disk_bytes": 2_u64 << 30}}).to_string();
    let created = engine.ask("POST", "/v1/workspaces", &body);
    if created.status != 201 {
        return report.fail(KEY, &format!("no persistence: {} {}", created.status, created.body));
    }
    let created: serde_json::Value = serde_json::from_str(&created.body).unwrap();
    let workspace = format!("/v1/workspaces/{}", created["workspace_id"].as_str().unwrap());
    engine.sh(&workspace, "for i in $(seq 64); do head -c 16M /dev/urandom >large$i; done");
    let save = format!("{workspace}/save");
    let saved = engine.ask("POST", &save, "{}");
    if saved.status != 200 {
        return report.fail(KEY, &format!("not saved: {} {}", saved.status, saved.body));
    }
    let written: Vec<f64> = (0..report.pairs.div_ceil(10))
        .map(|_| {
            engine.sh(&workspace, "head -c 1000000 /dev/urandom >changed");
            let before = written_bytes(engine.service.pid());
            let saved = engine.ask("POST", &save, "{}");
            assert_eq!(saved.status, 200, "{saved:?}");
            (written_bytes(engine.service.pid()) - before) as f64 / MB
        })
        .collect();
    report.row(KEY, median(written.iter().copied()), 1.0, Spread::of(written.into_iter()));
}

/// What the service has passed to write calls: more than reaches the disk.
fn written_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}
