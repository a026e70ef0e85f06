//! Read-only trees that are mounted: one copy for all workspaces.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use cofferdam_test_server::client::Client;
use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::directories::{archive, send, stage};
use super::staging::HostPlace;
use crate::exchange::ask;
use crate::scene::{EngineScene, scene};

const MIB: u64 = 1 << 20;
/// The entries of the tree, some modes and the first byte of `big`, as a program sees them.
const LOOK: &str =
    "cd skills/t; find . | sort | tr '\\n' ' '; stat -c %a . big run inner; head -c 1 big; ./run";
const SEEN: &str = ". ./big ./inner ./inner/link ./run 555\n444\n555\n555\nxran\n";

/// A place on the host with a tree of 2 MiB.
fn place() -> HostPlace {
    let host = HostPlace::new();
    let tree = host.path.join("large");
    fs::create_dir_all(tree.join("inner")).unwrap();
    fs::write(tree.join("big"), vec![b'x'; 2 << 20]).unwrap();
    fs::write(tree.join("run"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(tree.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../big", tree.join("inner/link")).unwrap();
    host
}

fn body(host: &HostPlace, to: &str) -> Value {
    json!({"src": host.input("large"), "to": to, "read_only": true, "allow_mount": true})
}

#[track_caller]
fn mount(scene: &EngineScene, workspace: &str, body: &Value) -> Value {
    let staged = stage(scene, workspace, body);
    assert_eq!((staged.status, &staged.json()["mount_used"]), (200, &json!(true)));
    staged.json()
}

fn used(scene: &EngineScene, workspace: &str) -> u64 {
    scene.get(workspace).json()["disk"]["used_bytes"].as_u64().unwrap()
}

/// The bytes that all workspaces hold together.
fn held(scene: &EngineScene) -> u64 {
    let metrics = String::from_utf8(scene.get("/metrics").body).unwrap();
    let line = metrics.lines().find(|line| line.starts_with("cofferdam_workspaces_disk_bytes "));
    let whole = line.unwrap().rsplit(' ').next().unwrap().split('.').next();
    whole.unwrap().parse().unwrap()
}

#[test]
fn the_engine_says_whether_read_only_trees_are_mounted() {
    let host = place();
    let Some(scene) = scene(&host.roots()) else { return };
    let workspace = scene.create(&json!({}));
    let staged = stage(&scene, &workspace, &body(&host, "skills/large"));
    let engine = scene.get("/v1/engine").json();
    assert_eq!(engine["read_only_mount"], staged.json()["mount_used"], "{engine}");
}

#[test]
fn workspaces_share_one_copy_that_counts_for_none_of_them() {
    let host = place();
    let Some(scene) = scene(&host.roots()) else { return };
    let small = json!({"policy": {"max_disk_bytes": MIB}});
    let first = scene.create(&small);
    let before = (used(&scene, &first), held(&scene));
    let staged = mount(&scene, &first, &body(&host, "skills/t"));
    let with_one = held(&scene);
    assert!(with_one >= before.1 + 2 * MIB, "{before:?} {with_one}");
    let others: Vec<String> = (0..2).map(|_| scene.create(&small)).collect();
    for other in &others {
        assert_eq!(mount(&scene, other, &body(&host, "skills/t"))["digest"], staged["digest"]);
    }
    assert!(held(&scene) < with_one + MIB, "{with_one} {}", held(&scene));
    for workspace in others.iter().chain([&first]) {
        assert_eq!(scene.sh(workspace, LOOK), SEEN);
        assert!(used(&scene, workspace) < before.0 + 64 * 1024);
        let skill = scene.get(&format!("{workspace}/metadata")).json()["skills"]["t"].clone();
        assert_eq!((&skill["mounted"], &skill["digest"]), (&json!(true), &staged["digest"]));
    }
    // A workspace shows it once, at any place.
    let elsewhere = scene.create(&small);
    mount(&scene, &elsewhere, &body(&host, "/tmp/deep/u"));
    assert_eq!(scene.sh(&elsewhere, "/tmp/deep/u/run"), "ran\n");
    let again = stage(&scene, &elsewhere, &body(&host, "work/u"));
    again.assert_error(507, "workspace.disk_full");
    assert_eq!(scene.delete(&elsewhere).status, 200);
    // The inode is that of the one copy.
    let inode = |workspace: &str| scene.sh(workspace, "stat -c %i skills/t/big");
    assert_eq!(inode(&first), inode(&others[0]));
    for workspace in others.iter().chain([&first]) {
        assert_eq!(scene.delete(workspace).status, 200);
    }
    wait_until("the last one frees it", Duration::from_secs(20), || held(&scene) == 0);
}

#[test]
fn every_door_shows_a_mounted_tree_as_programs_see_it_and_changes_nothing_of_it() {
    let host = place();
    let Some(scene) = scene(&host.roots()) else { return };
    let workspace = scene.create(&json!({}));
    let copied = scene.create(&json!({}));
    let staged = mount(&scene, &workspace, &body(&host, "skills/t"));
    let mut copy = body(&host, "skills/t");
    copy["allow_mount"] = json!(false);
    assert_eq!(stage(&scene, &copied, &copy).json()["mount_used"], false);
    let ask_for = |workspace: &str, target: &str| {
        let reply = scene.get(&format!("{workspace}/{target}"));
        (reply.status, reply.body)
    };
    for target in [
        "files?path=skills/t/big",
        "files?path=skills/t/inner/link",
        "stat?path=skills/t/run",
        "stat?path=skills/t/inner",
        "stat?path=skills/t/none",
        "list?path=skills/t&depth=9",
        "list?path=skills&depth=9",
        "digest?path=skills/t",
        "digest?path=skills",
        "tar?path=skills/t",
    ] {
        let (mounted, plain) = (ask_for(&workspace, target), ask_for(&copied, target));
        assert!(mounted == plain, "{target}: {} {}", mounted.0, plain.0);
    }
    assert_eq!(
        scene.get(&format!("{workspace}/digest?path=skills/t")).json()["digest"],
        staged["digest"]
    );
    let collected =
        scene.post(&format!("{workspace}/collect"), &json!({"patterns": ["skills/**/run"]}));
    assert_eq!(collected.json()["files"][0]["content"], "#!/bin/sh\necho ran\n");
    for (method, target) in [
        ("PUT", "files?path=skills/t/run"),
        ("PUT", "files?path=skills/t/new"),
        ("PUT", "tar?path=skills/t/inner"),
        ("DELETE", "files?path=skills/t/run"),
        ("DELETE", "files?path=skills/t&recursive=true"),
        ("DELETE", "files?path=skills&recursive=true"),
    ] {
        let bytes = archive(&[("x", b'0', "", b"x")]);
        let reply = ask(&scene.service, method, &format!("{workspace}/{target}"), "", &bytes);
        assert_eq!(reply.status, 409, "{method} {target}: {}", reply.json());
        reply.assert_error(409, "file.read_only");
    }
    for (from, to) in [("skills/t/run", "work/run"), ("work", "skills/t/work")] {
        let moved = scene.post(&format!("{workspace}/move"), &json!({"from": from, "to": to}));
        moved.assert_error(409, "file.read_only");
    }
    let below = json!({"src": host.input("tree"), "to": "skills/t/inner", "read_only": true, "allow_mount": true});
    stage(&scene, &workspace, &below).assert_error(409, "file.read_only");
    // Its name, and that of the directory above, can be moved.
    let moved =
        scene.post(&format!("{workspace}/move"), &json!({"from": "skills/t", "to": "skills/u"}));
    assert_eq!(moved.status, 200, "{}", moved.json());
    scene.sh(&workspace, "mv skills/u skills/v; mv skills other; mkdir skills; mv other/v other/t");
    let digest = scene.get(&format!("{workspace}/digest?path=other/t")).json();
    assert_eq!(digest["digest"], staged["digest"]);
    scene.sh(&workspace, "rmdir skills; mv other skills");
    assert_eq!(scene.sh(&workspace, LOOK), SEEN);
    assert!(used(&scene, &workspace) < MIB);
    // What is staged in its place replaces it, mounted or not.
    let other = json!({"src": host.input("tree"), "to": "skills/t", "read_only": true, "allow_mount": true});
    mount(&scene, &workspace, &other);
    assert_eq!(scene.sh(&workspace, "ls skills; cat skills/t/a"), "t\na");
    assert_eq!(stage(&scene, &workspace, &copy).status, 200);
    assert_eq!(scene.sh(&workspace, LOOK), SEEN);
}

#[test]
fn snapshots_forks_and_restarts_keep_a_mounted_tree_and_what_it_does_not_count() {
    let host = place();
    let Some(mut scene) = scene(&host.roots()) else { return };
    let limits = json!({"persist": true, "max_disk_bytes": MIB});
    let workspace = scene.create(&json!({"policy": limits}));
    scene.sh(&workspace, "echo mine >work/mine");
    mount(&scene, &workspace, &body(&host, "skills/t"));
    let snapshot = scene.post(&format!("{workspace}/snapshot"), &json!({"persist": true})).json();
    assert_eq!(snapshot["files"], 4, "{snapshot}");
    let of_snapshot = json!({"snapshot": snapshot["snapshot_id"]});
    let fork = scene.post(&format!("{workspace}/fork"), &json!({})).json();
    let fork = format!("/v1/workspaces/{}", fork["workspace_id"].as_str().unwrap());
    let all = |scene: &EngineScene, workspace: &str| {
        assert_eq!(scene.sh(workspace, LOOK), SEEN);
        assert_eq!(scene.sh(workspace, "cat work/mine; ! chmod u+w skills/t/run 2>&-"), "mine\n");
        assert!(used(scene, workspace) < MIB / 2, "{}", used(scene, workspace));
    };
    all(&scene, &fork);
    all(&scene, &scene.create(&of_snapshot));
    all(&scene, &workspace);
    assert_eq!(scene.post(&format!("{workspace}/save"), &json!({})).status, 200);
    scene.kill_and_start();
    all(&scene, &workspace);
    all(&scene, &scene.create(&of_snapshot));
    let shared = held(&scene);
    assert!(shared < 7 * MIB / 2, "both show one copy: {shared}");
    scene.drain_and_start();
    all(&scene, &workspace);
    scene.sh(&workspace, "! dd if=/dev/zero of=work/full bs=64k 2>&-");
    let full = scene.get(&workspace).json()["disk"].clone();
    assert_eq!(full["limit_bytes"], MIB, "the limit is the one of before: {full}");
    // A program has moved it: it comes back as a copy, whatever the limit is.
    scene.sh(&workspace, "rm work/full; mv skills/t skills/moved");
    scene.drain_and_start();
    let seen =
        scene.sh(&workspace, "head -c 1 skills/moved/big; ! chmod u+w skills/moved/run 2>&-");
    assert_eq!(seen, "x");
}

#[test]
fn a_tree_is_mounted_in_directories_that_a_snapshot_or_a_save_has() {
    let host = place();
    let Some(scene) = scene(&host.roots()) else { return };
    for (create, keep) in [
        (json!({}), "snapshot"),
        (json!({}), "fork"),
        (json!({"policy": {"persist": true}}), "save"),
    ] {
        let workspace = scene.create(&create);
        scene.sh(&workspace, "mkdir skills/t; echo old >skills/t/old; echo file >skills/u");
        let kept = scene.post(&format!("{workspace}/{keep}"), &json!({}));
        assert!(matches!(kept.status, 200 | 201), "{keep}: {}", kept.json());
        let staged = mount(&scene, &workspace, &body(&host, "skills/t"));
        assert_eq!(scene.sh(&workspace, LOOK), SEEN, "{keep}");
        let digest = scene.get(&format!("{workspace}/digest?path=skills/t")).json();
        assert_eq!(digest["digest"], staged["digest"], "{keep}");
        let other = json!({"src": host.input("tree"), "to": "skills/u", "read_only": true, "allow_mount": true});
        mount(&scene, &workspace, &other);
        assert_eq!(scene.sh(&workspace, "cat skills/u/a"), "a", "{keep}");
        let fork = scene.post(&format!("{workspace}/fork"), &json!({})).json();
        let fork = format!("/v1/workspaces/{}", fork["workspace_id"].as_str().unwrap());
        assert_eq!(scene.sh(&fork, LOOK), SEEN, "{keep}");
    }
}

#[test]
fn a_tree_is_copied_where_it_cannot_be_mounted() {
    let host = place();
    let total = [("ENGINE_DISK_TOTAL", "10MiB")];
    let Some(scene) = scene(&[&host.roots()[..], &total].concat()) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 8 * MIB}}));
    let script = "echo began; while ! [ -e go ]; do sleep 0.02; done; ls skills";
    let run = json!({"cmd": "sh", "args": ["-c", script], "timeout_ms": 60_000}).to_string();
    let mut client: Client = scene.service.connect();
    client.send(format!(
        "POST {workspace}/run HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{run}",
        run.len()
    ));
    client.wait_for("began");
    // A program that runs would not see a mount.
    let staged = stage(&scene, &workspace, &body(&host, "skills/t"));
    assert_eq!((staged.status, &staged.json()["mount_used"]), (200, &json!(false)));
    assert!(used(&scene, &workspace) > 2 * MIB);
    scene.put(&format!("{workspace}/files?path=go"), b"");
    let events = String::from_utf8(client.rest()).unwrap();
    assert!(events.contains(r"t\n"), "{events}");
    // No room for another copy in all workspaces together.
    fs::write(host.path.join("large/other"), vec![7; 8 << 20]).unwrap();
    let staged = stage(&scene, &workspace, &body(&host, "work/t"));
    staged.assert_error(507, "workspace.disk_full");
    assert_eq!(scene.sh(&workspace, LOOK), SEEN);
    assert!(scene.get(&format!("{workspace}/stat?path=work/t")).status == 404);
}

#[test]
fn trees_with_one_digest_and_other_modes_or_links_are_not_shared() {
    let Some(scene) = scene(&[]) else { return };
    let tree = |link: &str| {
        archive(&[("a", b'0', "", b"one"), ("b", b'0', "", b"two"), ("l", b'2', link, b"")])
    };
    let workspaces = ["a", "b"].map(|link| {
        let workspace = scene.create(&json!({}));
        let query = "to=skills/t&read_only=true&allow_mount=true";
        let staged = send(&scene, &workspace, query, &tree(link)).json();
        assert_eq!(staged["mount_used"], true, "{staged}");
        (staged["digest"].clone(), scene.sh(&workspace, "cat skills/t/l"))
    });
    assert_eq!(workspaces[0].0, workspaces[1].0);
    assert_eq!([&workspaces[0].1, &workspaces[1].1], ["one", "two"]);
}
