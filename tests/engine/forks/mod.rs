//! `POST W/fork`, `POST W/snapshot` and `/v1/snapshots`.

mod figures;
mod limits;
mod running;
mod snapshots;

use std::time::Duration;

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::exchange::{Reply, ask};
use crate::scene::{EngineScene, scene};

const W: &str = "/v1/workspaces";
const SNAPSHOTS: &str = "/v1/snapshots";
const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(20);
/// Lists everything that a program sees of its files, without times.
const LIST: &str = "cd /; find workspace tmp -printf '%p %y %m %l %s %U\\n' | \
                    grep -v 'runs\\| d ' | sort; cat workspace/work/* tmp/t tmp/home/h";

/// Forks a workspace and returns the path of the fork.
#[track_caller]
fn fork(scene: &EngineScene, of: &str, body: &Value) -> String {
    let reply = scene.post(&format!("{of}/fork"), body);
    assert_eq!(reply.status, 201, "{}", reply.json());
    format!("{W}/{}", reply.json()["workspace_id"].as_str().unwrap())
}

/// Takes a snapshot of a workspace and returns its view.
#[track_caller]
fn snapshot(scene: &EngineScene, of: &str) -> Value {
    let reply = scene.post(&format!("{of}/snapshot"), &json!({}));
    assert_eq!(reply.status, 201, "{}", reply.json());
    reply.json()
}

/// The path of a snapshot.
fn path_of(snapshot: &Value) -> String {
    format!("{SNAPSHOTS}/{}", snapshot["snapshot_id"].as_str().unwrap())
}

fn used_bytes(scene: &EngineScene, workspace: &str) -> u64 {
    scene.get(workspace).json()["disk"]["used_bytes"].as_u64().unwrap()
}

fn put(scene: &EngineScene, workspace: &str, path: &str, bytes: &[u8]) -> Reply {
    scene.put(&format!("{workspace}/files?path={path}"), bytes)
}

/// Starts a program and waits until it has made the file `ready`.
fn start(scene: &EngineScene, workspace: &str, script: &str) -> String {
    let body = json!({"cmd": "python3", "args": ["-c", script], "timeout_ms": 120_000});
    let started = scene.post(&format!("{workspace}/sessions"), &body);
    assert_eq!(started.status, 201, "{}", started.json());
    let is_ready = || scene.get(&format!("{workspace}/stat?path=ready")).status == 200;
    wait_until("the program", SOON, is_ready);
    format!("{workspace}/sessions/{}", started.json()["session_id"].as_str().unwrap())
}

#[test]
fn a_fork_has_the_files_as_they_were_and_both_go_their_own_ways() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    let script = "cd work; echo a >a; chmod 754 a; ln a hard; ln -s a link; mv a b; cp -p b a
                  mkdir -m 700 ../sub; mkfifo ../sub/fifo; rm -r ../out
                  echo t >/tmp/t; echo h >$HOME/h";
    scene.sh(&source, script);
    let before = scene.sh(&source, LIST);
    let one = fork(&scene, &source, &json!({}));
    assert_eq!(scene.sh(&one, LIST), before);
    scene.sh(&one, "echo one >work/b; rm work/a; mkdir out; echo one >/tmp/t");
    scene.sh(&source, "echo source >work/b; echo source >$HOME/h");
    let two = fork(&scene, &one, &json!({}));
    scene.sh(&two, "echo two >work/b");
    let read =
        |workspace: &str| scene.sh(workspace, "cat work/b /tmp/t $HOME/h; ls -d out work/a || :");
    assert_eq!(read(&source), "source\nt\nsource\nwork/a\n");
    assert_eq!(read(&one), "one\none\nh\nout\n");
    assert_eq!(read(&two), "two\none\nh\nout\n");
    // Each outlives those that it comes from.
    for gone in [&source, &one] {
        assert_eq!(scene.delete(gone).status, 200);
    }
    assert_eq!(read(&two), "two\none\nh\nout\n");
    scene.get(&source).assert_error(404, "workspace.not_found");
}

#[test]
fn a_fork_takes_what_the_contract_says_from_its_source_unless_it_is_given() {
    let Some(scene) = scene(&[]) else { return };
    let of_source = json!({
        "exec_id": "label", "path": "/srv/there", "limits": {"memory_mb": 100, "max_pids": 50},
        "env": {"A": "1", "B": "2"}, "policy": {"max_disk_bytes": 8 * MIB}, "max_inodes": 300,
        "ttl_ms": 60_000, "idle_ms": 50_000, "artifact_session": {"app": "a"},
    });
    let source = scene.create(&of_source);
    let view = |path: &str| scene.get(path).json();
    let forked = scene.post(&format!("{source}/fork"), &json!({}));
    let made = forked.json();
    let path = format!("{W}/{}", made["workspace_id"].as_str().unwrap());
    assert_eq!(forked.header("location"), Some(path.as_str()));
    let id = snapshot(&scene, &source)["snapshot_id"].clone();
    let from_snapshot = view(&scene.create(&json!({"snapshot": id})));
    assert_eq!((&made["snapshot"], &from_snapshot["snapshot"]), (&json!(null), &id));
    let of_source = view(&source);
    let keys: Vec<&String> = of_source.as_object().unwrap().keys().collect();
    for made in [&made, &from_snapshot] {
        assert_eq!(made.as_object().unwrap().keys().collect::<Vec<_>>(), keys);
        for key in ["path", "sandbox", "limits", "env", "max_inodes", "policy"] {
            assert_eq!(made[key], of_source[key], "{key}");
        }
        let own = ["exec_id", "ttl_ms", "idle_ms", "artifact_session", "network"];
        let own = own.map(|key| made[key].clone());
        assert_eq!(
            own,
            [json!(null), json!(86_400_000), json!(1_800_000), json!(null), json!(null)]
        );
    }
    assert_eq!(scene.sh(&path, "echo $A$B $PWD"), "12 /srv/there\n");
    let given = json!({
        "exec_id": "other", "path": "/mnt/here", "limits": {"memory_mb": 200}, "env": {"B": "3"},
        "policy": {"max_disk_bytes": 16 * MIB}, "max_inodes": 400, "ttl_ms": 1_000_000,
    });
    let path = fork(&scene, &source, &given);
    let made = view(&path);
    assert_eq!((&made["exec_id"], &made["env"]), (&json!("other"), &json!(["B"])));
    assert_eq!((&made["path"], &made["ttl_ms"]), (&json!("/mnt/here"), &json!(1_000_000)));
    assert_eq!(
        (&made["limits"]["memory_mb"], &made["limits"]["max_pids"]),
        (&json!(200), &json!(50))
    );
    let disk = &made["disk"];
    assert_eq!((&disk["limit_bytes"], &disk["limit_inodes"]), (&json!(16 * MIB), &json!(400)));
    assert_eq!(scene.sh(&path, "echo $A$B $PWD"), "3 /mnt/here\n");
}

#[test]
fn wrong_requests_are_refused_and_named() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    let id = snapshot(&scene, &source)["snapshot_id"].clone();
    for (below, body, path) in [
        ("snapshot", json!({"x": 1}), "x"),
        ("snapshot", json!({"persist": "yes"}), "persist"),
        ("fork", json!({"snapshot": id}), "snapshot"),
        ("fork", json!({"x": 1}), "x"),
    ] {
        let reply = scene.post(&format!("{source}/{below}"), &body);
        let error = reply.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path, "{error}");
    }
    for below in ["snapshot", "fork"] {
        let target = format!("{source}/{below}");
        ask(&scene.service, "POST", &target, "", b"{")
            .assert_error(400, "validation.invalid_request");
        scene
            .post(&format!("{W}/ws_x/{below}"), &json!({}))
            .assert_error(404, "workspace.not_found");
    }
    scene.post(W, &json!({"snapshot": "snap_x"})).assert_error(404, "snapshot.not_found");
    scene.get(&format!("{SNAPSHOTS}/snap_x")).assert_error(404, "snapshot.not_found");
    scene.delete(&format!("{SNAPSHOTS}/snap_x")).assert_error(404, "snapshot.not_found");
    let query = scene.get(&format!("{SNAPSHOTS}?x=1"));
    query.assert_error(422, "validation.invalid_request");
    assert_eq!(scene.post(&format!("{source}/snapshot"), &json!({"persist": false})).status, 201);
}

#[test]
fn seventy_generations_of_forks_and_seventy_snapshots_of_one_workspace_work() {
    let Some(scene) = scene(&[]) else { return };
    let mut newest = scene.create(&json!({}));
    for generation in 0..70 {
        put(&scene, &newest, &format!("work/f{generation:02}"), b"x");
        put(&scene, &newest, "work/same", generation.to_string().as_bytes());
        let next = fork(&scene, &newest, &json!({}));
        // Without its source, its layers are its own.
        if generation % 2 == 0 {
            scene.delete(&newest);
        }
        newest = next;
    }
    assert_eq!(scene.sh(&newest, "ls work | wc -l; cat work/same"), "71\n69");
    let mut taken = Vec::new();
    for number in 0..70 {
        put(&scene, &newest, "work/same", format!("again {number}").as_bytes());
        taken.push(snapshot(&scene, &newest));
    }
    for number in [0, 35, 69] {
        let copy = scene.create(&json!({"snapshot": taken[number]["snapshot_id"]}));
        assert_eq!(
            scene.sh(&copy, "cat work/same; ls work | wc -l"),
            format!("again {number}71\n")
        );
        scene.sh(&copy, "rm -r work; mkdir work; echo new >work/same");
        assert_eq!(scene.sh(&copy, "cat work/*"), "new\n");
    }
    assert_eq!(scene.sh(&newest, "cat work/same"), "again 69");
}

#[test]
fn a_fork_is_made_once_for_an_idempotency_key_and_for_a_label_that_is_acquired() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    assert_eq!(scene.get("/v1/engine").json()["fork"], "overlay");
    for (below, key) in [("fork", "workspace_id"), ("snapshot", "snapshot_id")] {
        let target = format!("{source}/{below}");
        let again = || scene.post_with(&target, "idempotency-key: k\r\n", &json!({}));
        let (first, second) = (again(), again());
        if below == "snapshot" {
            // The key was used for the fork.
            first.assert_error(409, "request.conflict");
            continue;
        }
        assert_eq!((first.status, second.status), (201, 201));
        assert_eq!(first.json()[key], second.json()[key]);
    }
    let acquire =
        || scene.post(&format!("{source}/fork"), &json!({"exec_id": "e", "acquire": true}));
    let (first, second) = (acquire(), acquire());
    assert_eq!((first.status, second.status), (201, 200));
    assert_eq!(first.json()["workspace_id"], second.json()["workspace_id"]);
}
