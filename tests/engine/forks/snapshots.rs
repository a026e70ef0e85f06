//! `POST W/snapshot` and `/v1/snapshots`.

use std::thread;
use std::time::Duration;

use cofferdam_test_server::client::Client;
use serde_json::{Value, json};

use super::{SNAPSHOTS, W, fork, path_of, put, snapshot, start};
use crate::exchange::{ask, reply};
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

#[test]
fn a_snapshot_is_shown_to_its_owner_only_until_it_is_deleted() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let [one, two] = [0, 1].map(bearer);
    let send = |method: &str, target: &str, headers: &str, body: &Value| {
        ask(&scene.service, method, target, headers, body.to_string().as_bytes())
    };
    let get = |target: &str, headers: &str| ask(&scene.service, "GET", target, headers, b"");
    let made = send("POST", W, &one, &json!({})).json();
    let source = format!("{W}/{}", made["workspace_id"].as_str().unwrap());
    for below in ["snapshot", "fork"] {
        let refused = send("POST", &format!("{source}/{below}"), &two, &json!({}));
        refused.assert_error(404, "workspace.not_found");
    }
    let taken: Vec<Value> = (0..5)
        .map(|_| {
            let reply = send("POST", &format!("{source}/snapshot"), &one, &json!({}));
            assert_eq!(reply.status, 201);
            assert_eq!(reply.header("location"), Some(path_of(&reply.json()).as_str()));
            reply.json()
        })
        .collect();
    let keys: Vec<&String> = taken[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["bytes", "created_at", "digest", "files", "snapshot_id"]);
    let path = path_of(&taken[0]);
    assert_eq!(get(&path, &one).json(), taken[0]);
    let mut cursor = String::new();
    let mut listed = Vec::new();
    loop {
        let page = get(&format!("{SNAPSHOTS}?limit=2{cursor}"), &one).json();
        listed.extend(page["snapshots"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed, taken.iter().rev().cloned().collect::<Vec<_>>());
    get(&path, &two).assert_error(404, "snapshot.not_found");
    send("DELETE", &path, &two, &json!({})).assert_error(404, "snapshot.not_found");
    let foreign = send("POST", W, &two, &json!({"snapshot": taken[0]["snapshot_id"]}));
    foreign.assert_error(404, "snapshot.not_found");
    assert_eq!(get(SNAPSHOTS, &two).json(), json!({"snapshots": [], "next_cursor": null}));
    assert_eq!(send("DELETE", &path, &one, &json!({})).status, 204);
    get(&path, &one).assert_error(404, "snapshot.not_found");
    send("DELETE", &path, &one, &json!({})).assert_error(404, "snapshot.not_found");
    assert_eq!(get(SNAPSHOTS, &one).json()["snapshots"].as_array().unwrap().len(), 4);
}

#[test]
fn a_snapshot_keeps_its_files_whatever_becomes_of_its_workspace() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    put(&scene, &source, "work/a", b"first");
    let taken = snapshot(&scene, &source);
    // `metadata.json` is the other one.
    assert_eq!(taken["files"], 2);
    assert!(taken["bytes"].as_u64().unwrap() > 5, "{taken}");
    put(&scene, &source, "work/a", b"second");
    let create = || scene.create(&json!({"snapshot": taken["snapshot_id"]}));
    let read = |workspace: &str| scene.get(&format!("{workspace}/files?path=work/a")).body;
    let one = create();
    assert_eq!((read(&one), read(&source)), (b"first".to_vec(), b"second".to_vec()));
    put(&scene, &one, "work/a", b"third");
    assert_eq!(scene.delete(&source).status, 200);
    let two = create();
    assert_eq!(scene.delete(&path_of(&taken)).status, 204);
    assert_eq!((read(&one), read(&two)), (b"third".to_vec(), b"first".to_vec()));
    assert_eq!(scene.sh(&two, "cat work/a"), "first");
}

#[test]
fn a_body_without_keys_may_be_missing() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"path": "/srv/w"}));
    for below in ["snapshot", "fork"] {
        let target = format!("{workspace}/{below}");
        let made = ask(&scene.service, "POST", &target, "", b"");
        assert_eq!(made.status, 201, "{below}: {}", made.json());
        ask(&scene.service, "POST", &target, "", b" ")
            .assert_error(400, "validation.invalid_request");
    }
}

#[test]
fn a_digest_tells_whether_files_differ() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    put(&scene, &source, "work/a", b"content");
    let digest =
        |workspace: &str| snapshot(&scene, workspace)["digest"].as_str().unwrap().to_owned();
    let first = digest(&source);
    assert!(first.len() == 64 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
    let one = fork(&scene, &source, &json!({}));
    assert_eq!((digest(&source), digest(&one)), (first.clone(), first.clone()));
    for change in
        ["echo >>work/a", "chmod 600 work/a", "ln -s a work/l", "mkdir work/d", "touch /tmp/x"]
    {
        let changed = fork(&scene, &source, &json!({}));
        scene.sh(&changed, change);
        assert_ne!(digest(&changed), first, "{change}");
    }
    put(&scene, &one, "work/a", b"other");
    assert_ne!(digest(&one), first);
    put(&scene, &one, "work/a", b"content");
    assert_eq!(digest(&one), first);
    assert_eq!(digest(&source), first);
}

#[test]
fn a_file_of_a_tebibyte_is_kept_forked_and_saved_as_the_little_data_that_it_has() {
    const SIZE: u64 = 1 << 40;
    let Some(mut scene) = scene(&[]) else { return };
    let source = scene.create(&json!({"policy": {"persist": true}}));
    let script = format!(
        "truncate -s {SIZE} work/s; printf end | dd of=work/s bs=1 seek={} conv=notrunc 2>&1",
        SIZE - 3
    );
    scene.sh(&source, &script);
    let body = json!({"persist": true});
    let taken = scene.post(&format!("{source}/snapshot"), &body);
    assert_eq!(taken.status, 201, "{}", taken.json());
    let taken = taken.json();
    assert!(taken["bytes"].as_u64() > Some(SIZE), "{taken}");
    assert_eq!(snapshot(&scene, &source)["digest"], taken["digest"]);
    let is_whole = |scene: &EngineScene, workspace: &str| {
        let target = format!("{workspace}/files?path=work/s");
        let part = ask(&scene.service, "GET", &target, "range: bytes=-3\r\n", b"");
        assert_eq!((part.status, part.body.as_slice()), (206, &b"end"[..]), "{workspace}");
        let found = scene.sh(workspace, "stat -c '%s %b' work/s");
        let (size, blocks) = found.trim().split_once(' ').unwrap();
        assert_eq!(size, SIZE.to_string(), "{workspace}");
        assert!(blocks.parse::<u64>().unwrap() < 1000, "{workspace}: {found}");
    };
    // What changed beside a program is copied.
    scene.sh(&source, &script);
    start(&scene, &source, "open('ready', 'w').close()\nimport time\ntime.sleep(100)");
    is_whole(&scene, &fork(&scene, &source, &json!({})));
    assert_eq!(scene.post(&format!("{source}/save"), &json!({})).status, 200);
    scene.drain_and_start();
    is_whole(&scene, &source);
    is_whole(&scene, &scene.create(&json!({"snapshot": taken["snapshot_id"]})));
}

#[test]
fn an_upload_is_in_a_snapshot_whole_or_not_at_all() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    let mut upload = Client::connect(scene.service.address);
    let target = format!("{source}/files?path=work/file");
    let head = format!(
        "PUT {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 6\r\n\r\n"
    );
    upload.send(format!("{head}abc"));
    let taken = thread::scope(|scope| {
        let taking = scope.spawn(|| snapshot(&scene, &source));
        thread::sleep(Duration::from_millis(300));
        upload.send("def");
        assert_eq!(reply(&upload.rest(), "PUT").unwrap().status, 201);
        taking.join().unwrap()
    });
    let copy = scene.create(&json!({"snapshot": taken["snapshot_id"]}));
    let found = scene.get(&format!("{copy}/files?path=work/file"));
    let leftovers = scene.sh(&copy, "ls -A work");
    match found.status {
        // The service took the snapshot before it read the upload.
        404 => assert_eq!(leftovers, ""),
        _ => assert_eq!((found.body.as_slice(), leftovers.as_str()), (&b"abcdef"[..], "file\n")),
    }
}

#[test]
fn snapshots_and_forks_are_limited() {
    let limits = [("ENGINE_SNAPSHOTS_MAX", "2"), ("ENGINE_WORKSPACES_MAX", "2")];
    let Some(scene) = scene(&limits) else { return };
    let source = scene.create(&json!({}));
    let taken = [snapshot(&scene, &source), snapshot(&scene, &source)];
    let error =
        scene.post(&format!("{source}/snapshot"), &json!({})).assert_error(429, "workspace.limit");
    assert_eq!(
        (&error["details"]["limit"], &error["details"]["max"]),
        (&json!("snapshots"), &json!(2))
    );
    scene.delete(&path_of(&taken[0]));
    snapshot(&scene, &source);
    fork(&scene, &source, &json!({}));
    scene.post(&format!("{source}/fork"), &json!({})).assert_error(503, "workspaces.full");
}
