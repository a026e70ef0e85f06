//! What a new service over the same directory knows.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::parked::{kept, park, status};
use crate::scene::scene;

#[test]
fn a_drained_service_leaves_kept_workspaces_parked_and_nothing_else() {
    let Some(mut scene) = scene(&[("SHUTDOWN_GRACE", "1s")]) else { return };
    let workspace =
        scene.create(&kept(&json!({"env": {"SECRET": "of-the-tenant"}, "exec_id": "e"})));
    let before = scene.create(&kept(&json!({})));
    park(&scene, &before);
    let forgotten = scene.create(&json!({"exec_id": "e"}));
    let snapshot = |of: &str, body| scene.post(&format!("{of}/snapshot"), &body).json();
    let forgotten_snapshot = snapshot(&forgotten, json!({}));
    let run = json!({"cmd": "sh", "args": ["-c", "echo live >work/f; echo ready; sleep 600"]});
    let session = scene.post(&format!("{workspace}/sessions"), &run).json();
    let session = format!("{workspace}/sessions/{}", session["session_id"].as_str().unwrap());
    let polled = scene.post(&format!("{session}/poll"), &json!({"wait_ms": 20_000})).json();
    assert_eq!(polled["output"], "ready");
    let created_at = scene.get(&workspace).json()["created_at"].clone();
    scene.drain_and_start();
    let listed = scene.get("/v1/workspaces").json();
    let listed: Vec<_> = listed["workspaces"].as_array().unwrap().iter().collect();
    let ids: Vec<_> = listed.iter().map(|view| view["workspace_id"].as_str().unwrap()).collect();
    let id = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    assert_eq!(ids, [id(&before), id(&workspace)], "the newest first");
    assert!(listed.iter().all(|view| view["status"] == "parked"), "{listed:?}");
    assert_eq!(scene.get(&workspace).json()["created_at"], created_at);
    scene.get(&forgotten).assert_error(404, "workspace.not_found");
    let path = format!("/v1/snapshots/{}", forgotten_snapshot["snapshot_id"].as_str().unwrap());
    scene.get(&path).assert_error(404, "snapshot.not_found");
    scene.get(&session).assert_error(404, "session.not_found");
    assert_eq!(status(&scene, &workspace), "parked");
    let settings = scene.store().join("workspaces").join(id(&workspace)).join("settings.json");
    assert_eq!(fs::metadata(&settings).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&settings).unwrap().contains("of-the-tenant"));
    assert_eq!(scene.sh(&workspace, "cat work/f; echo $SECRET"), "live\nof-the-tenant\n");
    let acquired = scene.post("/v1/workspaces", &json!({"exec_id": "e", "acquire": true}));
    assert_eq!(
        (acquired.status, acquired.json()["workspace_id"].as_str()),
        (200, Some(&*id(&workspace)))
    );
}

#[test]
fn a_kept_snapshot_survives_its_workspace_and_the_service() {
    let Some(mut scene) = scene(&[]) else { return };
    let source = scene.create(&json!({"env": {"A": "1"}}));
    scene.sh(&source, "echo first >work/f; ln work/f work/g; chmod 600 work/f");
    let taken = scene.post(&format!("{source}/snapshot"), &json!({"persist": true}));
    assert_eq!(taken.status, 201, "{}", taken.json());
    let taken = taken.json();
    let path = format!("/v1/snapshots/{}", taken["snapshot_id"].as_str().unwrap());
    scene.sh(&source, "echo second >work/f");
    for restart in [true, false] {
        if restart {
            scene.kill_and_start();
            scene.get(&source).assert_error(404, "workspace.not_found");
        }
        assert_eq!(scene.get(&path).json(), taken);
        assert_eq!(scene.get("/v1/snapshots").json()["snapshots"], json!([taken]));
        let fork = scene.create(&json!({"snapshot": taken["snapshot_id"]}));
        let seen = scene.sh(&fork, "cat work/g; stat -c '%a %h' work/f; echo $A");
        assert_eq!(seen, "first\n600 2\n1\n");
        let again = scene.post(&format!("{fork}/snapshot"), &json!({})).json();
        assert_eq!(again["files"], taken["files"]);
        let again = format!("/v1/snapshots/{}", again["snapshot_id"].as_str().unwrap());
        assert_eq!(scene.delete(&again).status, 204);
    }
    assert_eq!(scene.delete(&path).status, 204);
    scene.get(&path).assert_error(404, "snapshot.not_found");
    assert_eq!(fs::read_dir(scene.store().join("snapshots")).unwrap().count(), 0);
    scene.kill_and_start();
    scene.get(&path).assert_error(404, "snapshot.not_found");
}

#[test]
fn a_service_that_keeps_nothing_makes_no_store_and_two_cannot_share_one() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene
        .post(&format!("{workspace}/save"), &json!({}))
        .assert_error(422, "validation.invalid_request");
    assert!(!scene.store().join("workspaces").exists());
    let kept_one = scene.create(&kept(&json!({})));
    park(&scene, &kept_one);
    let other = crate::exchange::engine_server(&scene.store()).env("JOBS", "off");
    let (code, log) = other.refused();
    assert!(code != Some(0) && log.contains("one service at a time"), "{log}");
}
