//! `cofferdam doctor`: what this host enforces.

use serde_json::Value;

use crate::support::{cofferdam, has_keys_in_order};

#[test]
fn every_control_has_a_status_and_what_is_not_enforced_has_a_fix() {
    let done = cofferdam("doctor --json").run().exits(0).quietly();
    let text = done.stdout();
    has_keys_in_order(&text, &["controls", "name", "status", "reason", "fix", "environment"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let controls = report["controls"].as_array().unwrap();
    assert!(controls.iter().any(|control| control["name"] == "seccomp"), "{text}");
    for control in controls {
        let status = control["status"].as_str().unwrap();
        assert!(["enforced", "degraded", "missing"].contains(&status), "{control}");
        assert_ne!(control["reason"], "", "{control}");
        assert_eq!(control["fix"] == "", status == "enforced", "{control}");
    }
    let lines = cofferdam("doctor").run().exits(0).quietly();
    lines.holds(lines.stdout().lines().count() == controls.len(), "a line for every control");
}

#[test]
fn strict_fails_unless_everything_is_enforced() {
    let report = cofferdam("doctor --json").run().exits(0).stdout();
    let report: Value = serde_json::from_str(&report).unwrap();
    let controls = report["controls"].as_array().unwrap();
    let whole = controls.iter().all(|control| control["status"] == "enforced");
    cofferdam("doctor --strict").run().exits(if whole { 0 } else { 1 });
}
