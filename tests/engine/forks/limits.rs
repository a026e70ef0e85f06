//! How much room forks and snapshots have, take and give back.

use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::{MIB, SNAPSHOTS, SOON, W, fork, path_of, put, snapshot, start, used_bytes};
use crate::exchange::ask;
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

#[test]
fn a_fork_has_the_limits_of_bytes_and_inodes_for_its_own_files_and_the_shared_together() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({"policy": {"max_disk_bytes": 16 * MIB}, "max_inodes": 200}));
    put(&scene, &source, "work/a", &vec![7; 10 << 20]);
    let used = used_bytes(&scene, &source);
    let copy = fork(&scene, &source, &json!({}));
    assert_eq!((used_bytes(&scene, &copy), used_bytes(&scene, &source)), (used, used));
    let script = "head -c 20M /dev/zero >work/b 2>/dev/null; stat -c %s work/b; wc -c <work/a";
    for workspace in [&copy, &source] {
        let text = scene.run(workspace, &json!({"cmd": "sh", "args": ["-c", script]}));
        let text = text["stdout"].as_str().unwrap().to_owned();
        let sizes: Vec<u64> = text.lines().map(|line| line.trim().parse().unwrap()).collect();
        assert!((5 * MIB..=6 * MIB).contains(&sizes[0]) && sizes[1] == 10 * MIB, "{text}");
        put(&scene, workspace, "work/c", &vec![7; 1 << 20])
            .assert_error(507, "workspace.disk_full");
    }
    let script = "i=0; while true >work/n$i; do i=$((i+1)); done 2>/dev/null; ls work | wc -l";
    let copy = fork(&scene, &fork_of_empty(&scene), &json!({}));
    let text = scene.run(&copy, &json!({"cmd": "sh", "args": ["-c", script]}))["stdout"].clone();
    let made: u64 = text.as_str().unwrap().trim().parse().unwrap();
    assert!((150..200).contains(&made), "{made}");
    // What would leave less than 64 KiB or 16 inodes is not made, and changes nothing.
    let total = scene.get(W).json()["workspaces"].as_array().unwrap().len();
    for policy in [json!({"policy": {"max_disk_bytes": used}}), json!({"max_inodes": 20})] {
        let refused = scene.post(&format!("{source}/fork"), &policy);
        refused.assert_error(507, "workspace.disk_full");
    }
    assert_eq!(scene.get(W).json()["workspaces"].as_array().unwrap().len(), total);
}

/// A workspace with at most 200 files.
fn fork_of_empty(scene: &EngineScene) -> String {
    let source = scene.create(&json!({"max_inodes": 200}));
    fork(scene, &source, &json!({}))
}

#[test]
fn what_is_deleted_gives_its_space_back_once_no_snapshot_and_no_fork_needs_it() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({"policy": {"max_disk_bytes": 64 * MIB}}));
    let fill = || put(&scene, &source, "work/a", &vec![7; 30 << 20]).status;
    fill();
    let taken = snapshot(&scene, &source);
    let copy = fork(&scene, &source, &json!({}));
    scene.sh(&source, "rm work/a");
    let is_back = || used_bytes(&scene, &source) < MIB;
    assert!(used_bytes(&scene, &source) > 30 * MIB, "the snapshot and the fork need it");
    scene.delete(&path_of(&taken));
    assert!(!is_back(), "the fork needs it");
    scene.delete(&copy);
    wait_until("the space is given back", SOON, is_back);
    // The other way round: the layer is the workspace's own before the file goes, whatever deletes it.
    for delete in ["by request", "by a program"] {
        fill();
        scene.delete(&path_of(&snapshot(&scene, &source)));
        match delete {
            "by request" => drop(scene.delete(&format!("{source}/files?path=work/a"))),
            _ => drop(scene.sh(&source, "rm work/a")),
        }
        wait_until(delete, SOON, is_back);
    }
    // While a program runs, nothing is merged; then it is.
    fill();
    let session = start(&scene, &source, "import time; open('ready', 'w'); time.sleep(100)");
    let taken = snapshot(&scene, &source);
    scene.sh(&source, "rm work/a");
    scene.delete(&path_of(&taken));
    scene.delete(&session);
    wait_until("the end of the program", SOON, is_back);
    assert_eq!(fill(), 201);
}

#[test]
fn a_layer_counts_once_against_all_that_workspaces_may_hold() {
    let limits = [("ENGINE_DISK_TOTAL", "64MiB"), ("ENGINE_TOKEN_DISK_MAX", "48MiB")];
    let Some(scene) = scene_with_tokens(&limits) else { return };
    let headers = bearer(0);
    let send = |method: &str, target: &str, body: &[u8]| {
        ask(&scene.service, method, target, &headers, body)
    };
    let made = send("POST", W, b"{}").json();
    let source = format!("{W}/{}", made["workspace_id"].as_str().unwrap());
    let file = format!("{source}/files?path=work/a");
    let fill = || send("PUT", &file, &vec![7; 20 << 20]);
    assert_eq!(fill().status, 201);
    for _ in 0..10 {
        assert_eq!(send("POST", &format!("{source}/fork"), b"{}").status, 201);
        assert_eq!(send("POST", &format!("{source}/snapshot"), b"{}").status, 201);
    }
    // The old contents stay in the snapshots.
    assert_eq!(fill().status, 200);
    assert_eq!(send("POST", &format!("{source}/snapshot"), b"{}").status, 201);
    fill().assert_error(429, "token.limit");
    // The other token shares the total only.
    let other = ask(&scene.service, "POST", W, &bearer(1), b"{}").json();
    let other = format!("{W}/{}/files?path=b", other["workspace_id"].as_str().unwrap());
    let refused = ask(&scene.service, "PUT", &other, &bearer(1), &vec![7; 30 << 20]);
    refused.assert_error(503, "workspaces.full");
    // With the snapshots and forks gone, there is room.
    let listed = send("GET", SNAPSHOTS, b"").json()["snapshots"].clone();
    for taken in listed.as_array().unwrap() {
        assert_eq!(send("DELETE", &path_of(taken), b"").status, 204);
    }
    let listed = send("GET", W, b"").json()["workspaces"].clone();
    let paths = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|view| format!("{W}/{}", view["workspace_id"].as_str().unwrap()));
    for path in paths.filter(|path| *path != source) {
        assert_eq!(send("DELETE", &path, b"").status, 200);
    }
    wait_until("room for another", SOON, || fill().status == 200);
    assert_eq!(send("DELETE", &source, b"").status, 200);
    let metrics =
        || String::from_utf8(ask(&scene.service, "GET", "/metrics", &headers, b"").body).unwrap();
    let is_empty = || {
        metrics().lines().any(|line| {
            line.starts_with("cofferdam_workspaces_disk_bytes ") && line.ends_with(" 0")
        })
    };
    ask(&scene.service, "DELETE", other.split("/files").next().unwrap(), &bearer(1), b"");
    wait_until("nothing is charged", SOON, is_empty);
}
