//! How workspaces end: by request, by their times, and with the service.

mod kills;
mod parked;
mod restarts;
mod saves;

use std::time::{Duration, Instant};

use cofferdam_test_server::client::Client;
use cofferdam_test_server::host;
use cofferdam_test_server::service::wait_until;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::exchange::ask;
use crate::scene::{EngineScene, scene};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a shell script and returns its stream of events once it has begun.
fn live(scene: &EngineScene, workspace: &str, script: &str) -> Client {
    let script = format!("echo began; {script}");
    let body = json!({"cmd": "sh", "args": ["-c", script], "timeout_ms": 60_000}).to_string();
    let mut client = scene.service.connect();
    client.send(format!(
        "POST {workspace}/run HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.wait_for("began");
    client
}

#[test]
fn a_cleanup_kills_everything_and_the_workspace_is_gone() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let mut run = live(&scene, &workspace, "setsid sleep 60 & sleep 60");
    let cleaned = scene.delete(&workspace);
    assert_eq!(cleaned.status, 200);
    let id = workspace.rsplit('/').next().unwrap();
    assert_eq!(cleaned.json(), json!({"workspace_id": id, "persisted": false}));
    assert!(host::tenants(scene.service.pid()).is_empty(), "it answers when all is dead");
    let events = String::from_utf8(run.rest()).unwrap();
    assert!(events.contains(r#""outcome":"cancelled""#), "{events}");
    for reply in [
        scene.get(&workspace),
        scene.delete(&workspace),
        ask(&scene.service, "PATCH", &workspace, "", b"{}"),
        scene.post(&format!("{workspace}/run"), &json!({"cmd": "true"})),
        scene.get(&format!("{workspace}/list")),
    ] {
        reply.assert_error(404, "workspace.not_found");
    }
    assert!(scene.get("/metrics").status == 200);
}

#[test]
fn an_unused_workspace_ends_and_a_look_at_it_is_no_use() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"idle_ms": 300}));
    let began = Instant::now();
    wait_until("the end of an unused workspace", PATIENCE, || scene.get(&workspace).status == 404);
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
}

#[test]
fn a_program_keeps_its_workspace_from_being_idle_and_a_patch_changes_the_times() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"idle_ms": 1000}));
    assert_eq!(scene.sh(&workspace, "sleep 2; echo done"), "done\n");
    let body = br#"{"idle_ms": 60000, "ttl_ms": 120000}"#;
    let patched = ask(&scene.service, "PATCH", &workspace, "", body).json();
    assert_eq!((&patched["idle_ms"], &patched["ttl_ms"]), (&json!(60_000), &json!(120_000)));
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(scene.get(&workspace).status, 200);
    for body in [&br#"{"exec_id":"x"}"#[..], br#"{"ttl_ms":99999999999}"#] {
        let reply = ask(&scene.service, "PATCH", &workspace, "", body);
        reply.assert_error(422, "validation.invalid_request");
    }
}

#[test]
fn a_workspace_ends_at_its_ttl_with_what_runs_in_it() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"ttl_ms": 3000}));
    let view = scene.get(&workspace).json();
    assert!(view["expires_at"].as_str() > view["created_at"].as_str());
    let mut run = live(&scene, &workspace, "sleep 60");
    let events = String::from_utf8(run.rest()).unwrap();
    assert!(events.contains(r#""outcome":"cancelled""#), "{events}");
    wait_until("the end", PATIENCE, || scene.get(&workspace).status == 404);
}

#[test]
fn a_draining_service_refuses_new_work_and_ends_with_its_workspaces() {
    let Some(mut scene) = scene(&[("SHUTDOWN_GRACE", "20s")]) else { return };
    let workspace = scene.create(&json!({}));
    let mut run = live(&scene, &workspace, "while [ ! -e stop ]; do sleep 0.01; done; echo ended");
    scene.service.signal(Signal::SIGTERM);
    scene.service.wait_draining();
    let refused = scene.post("/v1/workspaces", &json!({}));
    refused.assert_error(503, "engine.closed");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let refused = scene.post(&format!("{workspace}/run"), &json!({"cmd": "true"}));
    refused.assert_error(503, "engine.closed");
    assert_eq!(scene.put(&format!("{workspace}/files?path=stop"), b"").status, 201);
    let events = String::from_utf8(run.rest()).unwrap();
    assert!(events.contains(r#""ended\n""#) && events.contains(r#""exit_code":0"#), "{events}");
    assert_eq!(scene.service.wait_end(PATIENCE).code(), Some(0));
}

#[test]
fn a_program_dies_with_its_client() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let run = live(&scene, &workspace, "sleep 60");
    assert_eq!(scene.get(&workspace).json()["runs"], 1);
    run.abort();
    wait_until("the end of the program", PATIENCE, || scene.get(&workspace).json()["runs"] == 0);
}
