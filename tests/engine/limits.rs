//! How much there may be of everything, in all and for each token.

use std::time::Duration;

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::exchange::Reply;
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

const W: &str = "/v1/workspaces";
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

fn path(view: &Value) -> String {
    format!("{W}/{}", view["workspace_id"].as_str().unwrap())
}

/// Runs a program that waits for the file `stop`, until `during` has ended.
fn while_one_runs(scene: &EngineScene, workspace: &str, headers: &str, during: impl FnOnce()) {
    let script = "while [ ! -e stop ]; do sleep 0.01; done; rm stop";
    let body = json!({"cmd": "sh", "args": ["-c", script], "timeout_ms": 60_000});
    std::thread::scope(|scope| {
        let run = scope.spawn(|| scene.post_with(&format!("{workspace}/run"), headers, &body));
        let runs = || {
            crate::exchange::ask(&scene.service, "GET", workspace, headers, b"").json()["runs"] == 1
        };
        wait_until("the program", PATIENCE, runs);
        during();
        let stop = format!("{workspace}/files?path=stop");
        crate::exchange::ask(&scene.service, "PUT", &stop, headers, b"");
        assert_eq!(run.join().unwrap().json()["exit_code"], 0);
    });
}

#[test]
fn all_workspaces_and_those_of_a_token_are_limited() {
    let limits = [("ENGINE_WORKSPACES_MAX", "3"), ("ENGINE_TOKEN_WORKSPACES_MAX", "2")];
    let Some(scene) = scene_with_tokens(&limits) else { return };
    let create = |client| scene.post_with(W, &bearer(client), &json!({}));
    let first = create(0);
    assert_eq!((first.status, create(0).status), (201, 201));
    let error = create(0).assert_error(429, "token.limit");
    assert_eq!(error["details"]["limit"], "workspaces");
    assert_eq!(create(1).status, 201);
    let full = create(1);
    full.assert_error(503, "workspaces.full");
    assert_eq!(full.header("retry-after"), Some("1"));
    let path = path(&first.json());
    crate::exchange::ask(&scene.service, "DELETE", &path, &bearer(0), b"");
    assert_eq!(create(1).status, 201);
}

#[test]
fn programs_at_once_are_limited_in_all_and_by_token() {
    let limits = [("ENGINE_RUNS_MAX", "2"), ("ENGINE_TOKEN_RUNS_MAX", "1")];
    let Some(scene) = scene_with_tokens(&limits) else { return };
    let [one, two] = [0, 1].map(bearer);
    let create = |headers: &str| path(&scene.post_with(W, headers, &json!({})).json());
    let (of_one, of_two) = (create(&one), create(&two));
    let run = |path: &str, headers: &str| -> Reply {
        scene.post_with(&format!("{path}/run"), headers, &json!({"cmd": "true"}))
    };
    while_one_runs(&scene, &of_one, &one, || {
        let error = run(&of_one, &one).assert_error(429, "token.limit");
        assert_eq!(error["details"]["limit"], "programs");
        assert_eq!(run(&of_two, &two).status, 200);
    });
    assert_eq!(run(&of_one, &one).status, 200);
}

#[test]
fn a_permit_is_free_when_the_answer_is_there() {
    let Some(scene) = scene(&[("ENGINE_RUNS_MAX", "1")]) else { return };
    let workspace = scene.create(&json!({}));
    for _ in 0..20 {
        scene.sh(&workspace, "true");
        assert_eq!(scene.get(&workspace).json()["runs"], 0);
    }
    while_one_runs(&scene, &workspace, "", || {
        let busy = scene.post(&format!("{workspace}/run"), &json!({"cmd": "true"}));
        busy.assert_error(503, "engine.busy");
        assert_eq!(busy.header("retry-after"), Some("1"));
    });
}

#[test]
fn the_bytes_of_all_workspaces_are_limited_with_what_programs_may_write() {
    let Some(scene) = scene(&[("ENGINE_DISK_TOTAL", "4MiB")]) else { return };
    let of_two_mib = json!({"policy": {"max_disk_bytes": 2 * MIB}});
    let [a, b, c] = [0; 3].map(|_| scene.create(&of_two_mib));
    let run = |path: &str| scene.post(&format!("{path}/run"), &json!({"cmd": "true"}));
    // While a program runs in one, only one more fits beside the little that the third holds.
    while_one_runs(&scene, &a, "", || {
        run(&b).assert_error(503, "workspaces.full");
        assert_eq!(run(&a).status, 200, "it is charged already");
    });
    assert_eq!(run(&b).status, 200);
    let put = |path: &str| scene.put(&format!("{path}/files?path=x"), &vec![0; 1_500_000]);
    assert_eq!((put(&a).status, put(&b).status), (201, 201));
    put(&c).assert_error(503, "workspaces.full");
    scene.delete(&a);
    assert_eq!(put(&c).status, 201);
}

#[test]
fn the_bytes_of_a_token_are_limited() {
    let Some(scene) = scene_with_tokens(&[("ENGINE_TOKEN_DISK_MAX", "2MiB")]) else { return };
    let body = json!({"policy": {"max_disk_bytes": 4 * MIB}});
    let view = scene.post_with(W, &bearer(0), &body).json();
    let run = format!("{}/run", path(&view));
    let error = scene.post_with(&run, &bearer(0), &json!({"cmd": "true"}));
    assert_eq!(error.assert_error(429, "token.limit")["details"]["limit"], "disk");
}

#[test]
fn a_request_longer_than_the_limit_is_refused() {
    let Some(scene) = scene(&[("ENGINE_INPUT_MAX", "1KiB")]) else { return };
    let long = json!({"exec_id": "e", "env": {"A": "x".repeat(2000)}});
    let error = scene.post(W, &long).assert_error(413, "validation.too_large");
    assert_eq!(error["details"]["bytes_max"], 1024);
    // The limit is for JSON only.
    let workspace = scene.create(&json!({}));
    assert_eq!(scene.put(&format!("{workspace}/files?path=x"), &[7; 5000]).status, 201);
}
