//! `/v1/workspaces`: created, acquired, found, listed, and whose they are.

use std::thread;

use cofferdam_test_server::host;
use serde_json::{Value, json};

use crate::exchange::ask;
use crate::scene::{bearer, scene, scene_with_tokens};

const W: &str = "/v1/workspaces";

#[test]
fn a_workspace_has_the_keys_of_the_contract_and_the_defaults() {
    let Some(scene) = scene(&[]) else { return };
    let reply = scene.post(W, &json!({}));
    assert_eq!(reply.status, 201);
    let view = reply.json();
    let id = view["workspace_id"].as_str().unwrap();
    assert_eq!(reply.header("location"), Some(format!("{W}/{id}").as_str()));
    let keys: Vec<&str> = view.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "acquire",
        "artifact_session",
        "contexts",
        "created_at",
        "disk",
        "env",
        "exec_id",
        "expires_at",
        "idle_ms",
        "last_access",
        "limits",
        "max_inodes",
        "network",
        "path",
        "policy",
        "runs",
        "sandbox",
        "saved_at",
        "sessions",
        "snapshot",
        "status",
        "ttl_ms",
        "workspace_id",
    ];
    assert_eq!(keys, expected);
    let policy = json!({"isolated": true, "persist": false, "storage": "memory",
                        "max_disk_bytes": 256 << 20});
    assert_eq!(view["policy"], policy);
    assert_eq!((&view["path"], &view["sandbox"]), (&json!("/workspace"), &json!("program")));
    assert_eq!((&view["ttl_ms"], &view["idle_ms"]), (&json!(86_400_000), &json!(1_800_000)));
    let limits = json!({"cpu_percent": 0, "memory_mb": 768, "max_pids": 256, "cpu_time_ms": 0,
                        "stdout_bytes": 1 << 20, "stderr_bytes": 1 << 20});
    assert_eq!(view["limits"], limits);
    assert_eq!(view["disk"]["limit_inodes"], 65_536);
    assert_eq!((&view["status"], &view["runs"]), (&json!("active"), &json!(0)));
    assert_eq!(scene.get(&format!("{W}/{id}")).json()["created_at"], view["created_at"]);
}

#[test]
fn what_a_request_names_is_kept_and_values_of_variables_are_not_shown() {
    let Some(scene) = scene(&[]) else { return };
    let body = json!({
        "exec_id": "a label", "path": "/home/agent/x", "ttl_ms": 60_000, "idle_ms": 0,
        "policy": {"isolated": false, "max_disk_bytes": 1 << 20, "storage": "memory"},
        "max_inodes": 100, "limits": {"memory_mb": 64}, "env": {"B": "secret", "A": "secret"},
        "artifact_session": {"app": "a", "user": "u"}, "sandbox": "program",
    });
    let view = scene.post(W, &body).json();
    assert_eq!((&view["exec_id"], &view["path"]), (&body["exec_id"], &body["path"]));
    assert_eq!((&view["ttl_ms"], &view["idle_ms"]), (&json!(60_000), &json!(1_800_000)));
    assert_eq!(view["policy"]["isolated"], true);
    assert_eq!(view["disk"]["limit_bytes"], 1 << 20);
    assert_eq!((&view["env"], &view["limits"]["memory_mb"]), (&json!(["A", "B"]), &json!(64)));
    assert_eq!(view["artifact_session"], json!({"app": "a", "user": "u", "session": ""}));
    assert!(!view.to_string().contains("secret"));
}

#[test]
fn a_wrong_request_is_refused_with_its_path_and_makes_nothing() {
    let Some(scene) = scene(&[]) else { return };
    for (body, path) in [
        (json!({"unknown": 1}), "unknown"),
        (json!({"policy": {"unknown": 1}}), "policy.unknown"),
        (json!({"policy": []}), "policy"),
        (json!({"policy": {"storage": "tape"}}), "policy.storage"),
        (json!({"exec_id": 7}), "exec_id"),
        (json!({"exec_id": "e".repeat(257)}), "exec_id"),
        (json!({"acquire": true}), "exec_id"),
        (json!({"path": "/etc"}), "path"),
        (json!({"path": "/home/../etc"}), "path"),
        (json!({"ttl_ms": -1}), "ttl_ms"),
        (json!({"ttl_ms": 721 * 3_600_000_u64}), "ttl_ms"),
        (json!({"limits": {"memory_mb": 2049}}), "limits.memory_mb"),
        (json!({"env": {"A B": "x"}}), "env"),
        (json!([]), "."),
    ] {
        let error = scene.post(W, &body).assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path, "{body}");
    }
    for text in ["", "{", "{\"a\":1,}"] {
        let reply = ask(&scene.service, "POST", W, "", text.as_bytes());
        reply.assert_error(400, "validation.invalid_request");
    }
    let small = json!({"policy": {"max_disk_bytes": 65_535}});
    scene.post(W, &small).assert_error(507, "workspace.disk_full");
    assert_eq!(scene.get(W).json(), json!({"workspaces": [], "next_cursor": null}));
}

#[test]
fn an_acquire_answers_the_earlier_end_as_a_look_does() {
    let Some(scene) = scene(&[]) else { return };
    let body = json!({"exec_id": "e", "acquire": true, "ttl_ms": 86_400_000, "idle_ms": 600_000});
    let made = scene.post(W, &body).json();
    let acquired = scene.post(W, &body);
    assert_eq!(acquired.status, 200);
    let time =
        |view: &Value, key: &str| humantime::parse_rfc3339(view[key].as_str().unwrap()).unwrap();
    for view in [made, acquired.json()] {
        let left = time(&view, "expires_at").duration_since(time(&view, "last_access"));
        let left = left.unwrap().as_millis();
        assert!((600_000..660_000).contains(&left), "{left}: {view}");
    }
}

#[test]
fn parallel_acquires_answer_one_workspace_and_a_create_makes_another() {
    let Some(scene) = scene(&[]) else { return };
    let body = json!({"exec_id": "e", "acquire": true});
    let replies: Vec<(u16, String)> = thread::scope(|scope| {
        let acquire = || {
            let reply = scene.post(W, &body);
            (reply.status, reply.json()["workspace_id"].as_str().unwrap_or_default().to_owned())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(acquire)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (made, acquired): (Vec<_>, Vec<_>) = replies.iter().partition(|(status, _)| *status == 201);
    assert_eq!((made.len(), acquired.len()), (1, 7), "{replies:?}");
    assert!(acquired.iter().all(|(status, id)| *status == 200 && *id == made[0].1));
    let other = scene.create(&json!({"exec_id": "e"}));
    assert!(!other.ends_with(&made[0].1));
    assert_eq!(
        scene.get(&format!("{W}?exec_id=e")).json()["workspaces"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn a_list_has_pages_and_takes_no_other_query() {
    let Some(scene) = scene(&[]) else { return };
    let made: Vec<String> =
        (0..3).map(|n| scene.create(&json!({"exec_id": n.to_string()}))).collect();
    let first = scene.get(&format!("{W}?limit=2")).json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = scene.get(&format!("{W}?limit=2&cursor={cursor}")).json();
    assert_eq!(second["next_cursor"], Value::Null);
    let listed = [&first, &second].map(|page| page["workspaces"].as_array().unwrap().clone());
    let ids: Vec<String> = listed
        .concat()
        .iter()
        .map(|view| format!("{W}/{}", view["workspace_id"].as_str().unwrap()))
        .collect();
    assert_eq!(ids, made.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(scene.get(&format!("{W}?status=parked")).json()["workspaces"], json!([]));
    for (query, path) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=x", "cursor"),
        ("status=idle", "status"),
        ("page=2", "page"),
    ] {
        let reply = scene.get(&format!("{W}?{query}"));
        let error = reply.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path, "{query}");
    }
    scene.get(&format!("{}?x=1", made[0])).assert_error(422, "validation.invalid_request");
}

#[test]
fn a_workspace_belongs_to_the_token_that_made_it() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let [one, two] = [0, 1].map(bearer);
    scene.get(W).assert_error(401, "auth.required");
    let made = scene.post_with(W, &one, &json!({"exec_id": "e"})).json();
    let path = format!("{W}/{}", made["workspace_id"].as_str().unwrap());
    let as_two =
        |method, target: &str, body: &[u8]| ask(&scene.service, method, target, &two, body);
    as_two("GET", &path, b"").assert_error(404, "workspace.not_found");
    as_two("PATCH", &path, b"{}").assert_error(404, "workspace.not_found");
    as_two("DELETE", &path, b"").assert_error(404, "workspace.not_found");
    for (method, door, body) in [
        ("POST", "run", &br#"{"cmd":"true"}"#[..]),
        ("POST", "files", br#"{"files":[]}"#),
        ("GET", "files?path=metadata.json", b""),
        ("PUT", "files?path=a", b"x"),
        ("DELETE", "files?path=out", b""),
        ("GET", "stat?path=out", b""),
        ("GET", "list", b""),
        ("POST", "mkdir", br#"{"path":"a"}"#),
        ("POST", "move", br#"{"from":"out","to":"a"}"#),
        ("GET", "tar?path=.", b""),
        ("PUT", "tar?path=.", b""),
        ("GET", "digest?path=.", b""),
        ("GET", "metadata", b""),
    ] {
        let reply = as_two(method, &format!("{path}/{door}"), body);
        reply.assert_error(404, "workspace.not_found");
    }
    let listed = as_two("GET", W, b"").json();
    assert_eq!(listed["workspaces"], json!([]));
    let acquire = json!({"exec_id": "e", "acquire": true});
    assert_eq!(scene.post_with(W, &two, &acquire).status, 201);
    assert_eq!(scene.post_with(W, &one, &acquire).json()["workspace_id"], made["workspace_id"]);
}

#[test]
fn a_key_gives_the_first_answer_again_and_another_body_is_refused() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let headers = |client, key: &str| format!("{}idempotency-key: {key}\r\n", bearer(client));
    let body = json!({"exec_id": "e"});
    let first = scene.post_with(W, &headers(0, "k"), &body);
    let again = scene.post_with(W, &headers(0, "k"), &body);
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    assert_eq!(first.header("location"), again.header("location"));
    scene.post_with(W, &headers(0, "k"), &json!({})).assert_error(409, "request.conflict");
    assert_ne!(scene.post_with(W, &headers(0, "other"), &body).body, first.body);
    assert_ne!(scene.post_with(W, &headers(1, "k"), &body).body, first.body);
    let wrong = scene.post_with(W, &headers(0, "two words"), &body);
    wrong.assert_error(422, "validation.invalid_request");
    // A refused request frees its key.
    scene
        .post_with(W, &headers(0, "free"), &json!({"x": 1}))
        .assert_error(422, "validation.invalid_request");
    assert_eq!(scene.post_with(W, &headers(0, "free"), &body).status, 201);
}

#[test]
fn the_host_mounts_a_workspace_nowhere() {
    let Some(scene) = scene(&[]) else { return };
    let pid = scene.service.pid();
    let (mounts, inits) = (host::mounts(pid), host::inits(pid).len());
    let workspace = scene.create(&json!({}));
    scene.sh(&workspace, "echo kept >kept");
    assert_eq!(host::mounts(pid), mounts);
    // Nor does anything of it run.
    assert!(host::tenants(pid).is_empty());
    assert_eq!(host::inits(pid).len(), inits);
    assert_eq!(scene.sh(&workspace, "cat kept"), "kept\n");
}

#[test]
fn a_workspace_can_be_on_disk_where_the_host_has_loop_devices() {
    let Some(scene) = scene(&[("ENGINE_DISK_TOTAL", "1MiB")]) else { return };
    let body = json!({"policy": {"storage": "disk", "max_disk_bytes": 8 << 20}});
    let reply = scene.post(W, &body);
    if reply.status == 503 {
        reply.assert_error(503, "storage.unavailable");
        return;
    }
    let view = reply.json();
    assert_eq!((reply.status, &view["policy"]["storage"]), (201, &json!("disk")), "{view}");
    let workspace = format!("{W}/{}", view["workspace_id"].as_str().unwrap());
    // It does not count as memory, and has a limit of its own.
    scene.sh(&workspace, "head -c 4M /dev/zero >x; stat -c '%u %s' x");
    let full = json!({"cmd": "sh", "args": ["-c", "head -c 16M /dev/zero >y || exit 5"]});
    assert_eq!(scene.run(&workspace, &full)["limit"], "disk");
    assert_eq!(scene.delete(&workspace).status, 200);
}

#[test]
fn the_engine_describes_itself_and_can_be_disabled() {
    let Some(on) = scene(&[("ENGINE_PIDS_MAX", "77")]) else { return };
    let engine = on.get("/v1/engine").json();
    assert_eq!((&engine["isolation"], &engine["streaming"]), (&json!("sandbox"), &json!(true)));
    assert_eq!(
        (&engine["network_allowed"], &engine["max_disk_bytes"]),
        (&json!(false), &json!(4_u64 << 30))
    );
    assert_eq!(engine["maxima"]["pids"], 77);
    assert_eq!(engine["code_block_delimiter"], json!({"start": "```", "end": "```"}));
    on.get("/v1/engine?x=1").assert_error(422, "validation.invalid_request");
    let off = scene(&[("ENGINE", "off")]).unwrap();
    assert_eq!((off.get("/v1/engine").status, off.get(W).status), (404, 404));
}
