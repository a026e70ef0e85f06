//! A prepared sandbox looks to the tenant like one that is created for the request.

use std::path::Path;

use cofferdam_test_server::service::{Service, Setup};
use cofferdam_test_server::workspace::Workspace;
use serde_json::{Value, json};

use crate::ready::{OVERLAID_FILES, run_in_ready};

/// Prints everything a program can see, except times, counters and numbers that always differ.
const SEE: &str = include_str!("see.py");

/// A workspace for solutions in Python.
fn python() -> Workspace {
    Workspace::running(&["exec python3 -IS check/solution.py"]).with("lib/data", "data")
}

fn with_many_files(workspace: Workspace) -> Workspace {
    for number in 0..OVERLAID_FILES {
        workspace.put(&format!("lib/{number}"), "one of many");
    }
    workspace
}

fn service(workspace: &Path, standby_max: &str) -> Service {
    let setup = Setup::inside(workspace).arg("--workspace").arg(workspace);
    setup.env("STANDBY_MAX", standby_max).env("RUN_ENV_ALLOW", "TZ").env("TZ", "UTC").start()
}

fn see(timeout: &str) -> Value {
    json!({ "lang_slug": "python", "solution_text": SEE, "asserts": "[1]", "timeout": timeout })
}

#[track_caller]
fn assert_alike(workspace: &Workspace, marker: &str) {
    let without = service(workspace.path(), "0");
    let with = service(workspace.path(), "2");
    // The first run has a sandbox created for it, and starts the pool.
    let first = with.post(&see("20s")).stdout();
    for timeout in ["20s", "7s", "20s"] {
        let made = without.post(&see(timeout)).stdout();
        let stood = run_in_ready(&with, &see(timeout)).stdout();
        assert_same(&made, &stood);
        assert!(made.contains(marker), "{marker:?} is not in {made}");
        for part in ["Seccomp: 2", "NoNewPrivs: 1", "/workspace/check/asserts.json", "Max cpu time"]
        {
            assert!(made.contains(part), "{part:?} is not in {made}");
        }
        if timeout == "20s" {
            assert_same(&made, &first);
        } else {
            assert!(made != first, "the limits of two timeouts are the same");
        }
    }
}

/// Compares line by line and prints the lines that differ.
#[track_caller]
fn assert_same(made: &str, stood: &str) {
    let only_in = |one: &str, other: &str| {
        let others: Vec<&str> = other.lines().collect();
        let only: Vec<String> =
            one.lines().filter(|line| !others.contains(line)).map(str::to_owned).collect();
        only.join("\n")
    };
    assert!(
        made == stood,
        "only where it was made for the request:\n{}\nonly where it stood:\n{}",
        only_in(made, stood),
        only_in(stood, made)
    );
}

#[test]
fn a_prepared_sandbox_with_a_copied_workspace_looks_like_a_new_one() {
    assert_alike(&python(), "'/workspace/lib/data', '0o100644', 10001, 10001");
}

#[test]
fn a_prepared_sandbox_with_an_overlaid_workspace_looks_like_a_new_one() {
    assert_alike(&with_many_files(python()), "- overlay ");
}
