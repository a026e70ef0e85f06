//! `sandbox: "workspace"`: one sandbox for all programs of a workspace.

mod attacks;
mod ends;
mod limits;
mod processes;

use std::time::Duration;

use serde_json::{Value, json};

use crate::scene::{EngineScene, scene};

/// Longer than anything here takes in an emulated guest.
const SOON: Duration = Duration::from_secs(60);

/// A service and a workspace whose programs share one sandbox.
fn shared() -> Option<(EngineScene, String)> {
    shared_with(&json!({}))
}

/// As [`shared`], created with these keys too.
fn shared_with(keys: &Value) -> Option<(EngineScene, String)> {
    let scene = scene(&[])?;
    let workspace = scene.create(&with(keys, &json!({"sandbox": "workspace"})));
    Some((scene, workspace))
}

/// The keys of both.
fn with(keys: &Value, more: &Value) -> Value {
    let mut all = keys.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    all.into()
}

/// Runs a shell script, which may fail.
#[track_caller]
fn run(scene: &EngineScene, workspace: &str, script: &str, keys: &Value) -> Value {
    scene.run(workspace, &with(keys, &json!({"cmd": "sh", "args": ["-c", script]})))
}

/// The processes of a workspace.
#[track_caller]
fn processes(scene: &EngineScene, workspace: &str) -> Vec<Value> {
    let reply = scene.get(&format!("{workspace}/processes"));
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()["processes"].as_array().unwrap().clone()
}

/// The processes whose arguments are `command`.
fn running(scene: &EngineScene, workspace: &str, command: &str) -> Vec<Value> {
    let shown = |process: &Value| -> String {
        let args = process["args"].as_array().unwrap().iter();
        args.map(|arg| arg.as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let all = processes(scene, workspace).into_iter();
    all.filter(|process| shown(process) == command).collect()
}

/// Starts `script` in a session; returns its path.
#[track_caller]
fn start(scene: &EngineScene, workspace: &str, script: &str, keys: &Value) -> String {
    let body = with(keys, &json!({"cmd": "sh", "args": ["-c", script]}));
    let started = scene.post(&format!("{workspace}/sessions"), &body);
    assert_eq!(started.status, 201, "{}", started.json());
    format!("{workspace}/sessions/{}", started.json()["session_id"].as_str().unwrap())
}
