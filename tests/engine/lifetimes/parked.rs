//! Workspaces with `persist`: parked by each of their ends, woken by each use, removed for good.

use std::fs;
use std::thread;

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::PATIENCE;
use crate::exchange::ask;
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

/// Everything that a program sees of its files but the directories of runs.
const LIST: &str =
    "cd /; find workspace tmp -printf '%p %y %m %l %s %U %n %T@\\n' | grep -v runs | sort
                    cat workspace/work/* tmp/t $HOME/h";

pub(super) fn kept(more: &Value) -> Value {
    let mut body = json!({"policy": {"persist": true}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

pub(super) fn status(scene: &EngineScene, workspace: &str) -> Value {
    let reply = scene.get(workspace);
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()["status"].clone()
}

#[track_caller]
pub(super) fn park(scene: &EngineScene, workspace: &str) {
    let parked = scene.delete(workspace);
    let id = workspace.rsplit('/').next().unwrap();
    assert_eq!(parked.json(), json!({"workspace_id": id, "persisted": true}));
    assert_eq!((parked.status, status(scene, workspace)), (200, json!("parked")));
}

#[test]
fn a_parked_workspace_comes_back_with_its_files_and_settings() {
    let Some(scene) = scene(&[]) else { return };
    let body = kept(&json!({
        "path": "/home/me", "env": {"SECRET": "value"}, "exec_id": "e", "max_inodes": 500,
        "limits": {"memory_mb": 99}, "artifact_session": {"app": "a", "user": "u", "session": "s"}
    }));
    let workspace = scene.create(&body);
    let script = "ln -s /home/me /workspace 2>/dev/null || :
                  cd /home/me/work; echo a >a; chmod 754 a; ln a hard; ln -s a link; touch -d @5.5 a
                  mkfifo ../fifo; mkdir -m 700 ../sub; touch -d @7 ../sub; rm -r ../out; truncate -s 1G sparse
                  rm sparse; echo t >/tmp/t; echo h >$HOME/h";
    scene.sh(&workspace, script);
    let list =
        LIST.replace("find workspace", "find home/me").replace("cat workspace", "cat home/me");
    let before = scene.sh(&workspace, &list);
    let shown = scene.get(&workspace).json();
    assert_eq!((&shown["policy"]["persist"], &shown["status"]), (&json!(true), &json!("active")));
    park(&scene, &workspace);
    let parked = scene.get(&workspace).json();
    assert_eq!((&parked["expires_at"], &parked["runs"]), (&json!(null), &json!(0)));
    assert!(parked["saved_at"].as_str() > shown["created_at"].as_str());
    for key in
        ["created_at", "path", "env", "exec_id", "limits", "policy", "artifact_session", "ttl_ms"]
    {
        assert_eq!(parked[key], shown[key], "{key}");
    }
    assert_eq!(parked["disk"]["limit_inodes"], 500);
    assert!(parked["disk"]["used_bytes"].as_u64() > Some(0));
    assert_eq!(scene.sh(&workspace, &list), before);
    assert_eq!(scene.sh(&workspace, "echo $SECRET"), "value\n");
    let woken = scene.get(&workspace).json();
    assert_eq!((&woken["status"], &woken["created_at"]), (&json!("active"), &shown["created_at"]));
    assert_eq!(woken["saved_at"], parked["saved_at"]);
    assert!(woken["expires_at"].as_str() > shown["expires_at"].as_str(), "its times begin anew");
}

#[test]
fn any_use_wakes_a_parked_workspace_and_no_look_at_it_does() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&kept(&json!({"exec_id": "label"})));
    assert_eq!(scene.put(&format!("{workspace}/files?path=work/f"), b"kept").status, 201);
    park(&scene, &workspace);
    let id = workspace.rsplit('/').next().unwrap().to_owned();
    let at = |below: &str| format!("{workspace}/{below}");
    for list in ["status=parked", "exec_id=label", "exec_id=label&status=parked"] {
        let listed = scene.get(&format!("/v1/workspaces?{list}")).json();
        assert_eq!(listed["workspaces"][0]["workspace_id"], json!(id), "{list}");
    }
    let active = scene.get("/v1/workspaces?status=active").json();
    assert_eq!(active["workspaces"], json!([]));
    let patched = ask(&scene.service, "PATCH", &workspace, "", br#"{"ttl_ms": 7200000}"#);
    assert_eq!((patched.status, &patched.json()["ttl_ms"]), (200, &json!(7_200_000)));
    assert_eq!(scene.get(&at("sessions")).json()["sessions"], json!([]));
    assert_eq!(scene.get(&at("contexts")).json()["contexts"], json!([]));
    scene.get(&at("sessions/none")).assert_error(404, "session.not_found");
    scene.get(&at("contexts/none")).assert_error(404, "context.not_found");
    assert_eq!(scene.delete(&workspace).json()["persisted"], true);
    assert_eq!(status(&scene, &workspace), "parked");
    let run = json!({"cmd": "true"});
    let blocks = json!({"code_blocks": [{"code": "true", "language": "bash"}], "workspace_id": id});
    let uses: [(&str, String, Value, u16); 15] = [
        ("POST", at("run"), run.clone(), 200),
        ("POST", at("sessions"), run, 201),
        ("GET", at("files?path=work/f"), json!(null), 200),
        ("POST", at("files"), json!({"files": [{"path": "work/g", "content": ""}]}), 200),
        ("DELETE", at("files?path=work/g"), json!(null), 204),
        ("GET", at("stat?path=work"), json!(null), 200),
        ("GET", at("list?path=work"), json!(null), 200),
        ("POST", at("mkdir"), json!({"path": "work/d"}), 201),
        ("POST", at("move"), json!({"from": "work/d", "to": "work/e"}), 200),
        ("GET", at("digest?path=work"), json!(null), 200),
        ("GET", at("metadata"), json!(null), 200),
        ("POST", at("collect"), json!({"patterns": ["work/*"]}), 200),
        ("POST", at("save"), json!({}), 200),
        ("POST", "/v1/execute".to_owned(), blocks, 200),
        ("POST", "/v1/workspaces".to_owned(), json!({"exec_id": "label", "acquire": true}), 200),
    ];
    for (method, target, body, expected) in uses {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = ask(&scene.service, method, &target, "", body.as_bytes());
        assert_eq!(reply.status, expected, "{target}: {}", String::from_utf8_lossy(&reply.body));
        assert_eq!(status(&scene, &workspace), "active", "{method} {target}");
        assert_eq!(scene.get(&workspace).json()["ttl_ms"], 7_200_000);
        park(&scene, &workspace);
    }
    for (below, expected) in [("snapshot", 201), ("fork", 201)] {
        assert_eq!(scene.post(&at(below), &json!({})).status, expected, "{below}");
        assert_eq!(status(&scene, &workspace), "active", "{below}");
        park(&scene, &workspace);
    }
    assert_eq!(scene.get(&at("files?path=work/f")).body, b"kept");
}

#[test]
fn requests_for_a_parked_workspace_wake_it_once() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&kept(&json!({})));
    scene.sh(&workspace, "echo x >work/x");
    park(&scene, &workspace);
    thread::scope(|scope| {
        for number in 0..6 {
            let (scene, workspace) = (&scene, &workspace);
            scope
                .spawn(move || scene.sh(workspace, &format!("cat work/x; echo >work/of-{number}")));
        }
    });
    let found = scene.sh(&workspace, "ls work");
    assert_eq!(found, "of-0\nof-1\nof-2\nof-3\nof-4\nof-5\nx\n", "all wrote to the same files");
}

#[test]
fn the_times_of_a_workspace_park_it_with_what_runs_in_it() {
    let Some(scene) = scene(&[]) else { return };
    let idle = scene.create(&kept(&json!({"idle_ms": 300})));
    let over = scene.create(&kept(&json!({"ttl_ms": 4000})));
    let mut run = super::live(&scene, &over, "echo was here >work/f; sleep 60");
    for workspace in [&idle, &over] {
        wait_until("parking", PATIENCE, || status(&scene, workspace) == "parked");
    }
    let events = String::from_utf8(run.rest()).unwrap();
    assert!(events.contains(r#""outcome":"cancelled""#), "{events}");
    let patched = ask(&scene.service, "PATCH", &over, "", br#"{"ttl_ms": 600000}"#);
    assert_eq!((patched.status, status(&scene, &over)), (200, json!("parked")));
    assert_eq!(scene.sh(&over, "cat work/f"), "was here\n");
}

#[test]
fn a_purge_leaves_nothing_in_the_store_and_so_does_the_time_for_which_parked_ones_are_kept() {
    let Some(scene) = scene(&[("ENGINE_PARKED_KEEP", "1500ms")]) else { return };
    let stored = || fs::read_dir(scene.store().join("workspaces")).map_or(0, Iterator::count);
    let [live, parked, expiring] = [0; 3].map(|_| scene.create(&kept(&json!({}))));
    assert_eq!(scene.post(&format!("{live}/save"), &json!({})).status, 200);
    assert_eq!(stored(), 1);
    park(&scene, &parked);
    for workspace in [&live, &parked] {
        let id = workspace.rsplit('/').next().unwrap();
        let purged = scene.delete(&format!("{workspace}?purge=true"));
        assert_eq!(purged.json(), json!({"workspace_id": id, "persisted": false}));
        scene.get(workspace).assert_error(404, "workspace.not_found");
        scene
            .post(&format!("{workspace}/run"), &json!({"cmd": "true"}))
            .assert_error(404, "workspace.not_found");
    }
    park(&scene, &expiring);
    wait_until("the end of a parked workspace", PATIENCE, || scene.get(&expiring).status == 404);
    wait_until("the end of its files", PATIENCE, || stored() == 0);
}

#[test]
fn a_parked_workspace_belongs_to_its_token() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let [one, two] = [0, 1].map(bearer);
    let body = kept(&json!({"exec_id": "same"})).to_string();
    let made = ask(&scene.service, "POST", "/v1/workspaces", &one, body.as_bytes()).json();
    let workspace = format!("/v1/workspaces/{}", made["workspace_id"].as_str().unwrap());
    assert_eq!(ask(&scene.service, "DELETE", &workspace, &one, b"").status, 200);
    for (method, below, body) in [
        ("GET", "", ""),
        ("PATCH", "", "{}"),
        ("DELETE", "?purge=true", ""),
        ("POST", "/save", "{}"),
        ("POST", "/run", r#"{"cmd":"true"}"#),
        ("GET", "/sessions", ""),
    ] {
        let reply =
            ask(&scene.service, method, &format!("{workspace}{below}"), &two, body.as_bytes());
        reply.assert_error(404, "workspace.not_found");
    }
    let listed = ask(&scene.service, "GET", "/v1/workspaces", &two, b"").json();
    assert_eq!(listed["workspaces"], json!([]));
    let acquire = br#"{"exec_id": "same", "acquire": true}"#;
    assert_eq!(ask(&scene.service, "POST", "/v1/workspaces", &two, acquire).status, 201);
    assert_eq!(ask(&scene.service, "GET", &workspace, &one, b"").json()["status"], "parked");
}

#[test]
fn a_parked_workspace_takes_no_memory_and_wakes_only_if_there_is_some() {
    let Some(scene) = scene(&[("ENGINE_DISK_TOTAL", "12MiB")]) else { return };
    let mib = vec![1; 6 << 20];
    let parked = scene.create(&kept(&json!({})));
    assert_eq!(scene.put(&format!("{parked}/files?path=work/f"), &mib).status, 201);
    park(&scene, &parked);
    let other = scene.create(&json!({}));
    assert_eq!(scene.put(&format!("{other}/files?path=work/f"), &mib).status, 201);
    let file = format!("{parked}/files?path=work/f");
    scene.get(&file).assert_error(503, "workspaces.full");
    assert_eq!(status(&scene, &parked), "parked");
    assert_eq!(scene.delete(&other).status, 200);
    assert!(scene.get(&file).body == mib);
}
