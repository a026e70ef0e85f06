//! What belongs to another token, and to another workspace.

use std::fs;
use std::path::Path;

use cofferdam_test_server::service::{Service, wait_until};
use serde_json::{Value, json};

use super::archives;
use super::doors::Door;
use crate::Unexercised;
use crate::engine::{EngineClient, SOON, WORKSPACES, promptly};
use crate::marker::Marker;
use crate::probe::script;
use crate::target::Target;

const TOKENS: [(&str, &str); 2] = [("one", "token-of-tenant-one"), ("two", "token-of-tenant-two")];

/// Requests for what lies below a workspace; `{s}` and `{c}` stand for a session and a context.
const BELOW: [(&str, &str); 24] = [
    ("GET", ""),
    ("PATCH", ""),
    ("GET", "/sessions"),
    ("GET", "/sessions/{s}"),
    ("POST", "/sessions/{s}/poll"),
    ("GET", "/sessions/{s}/log"),
    ("POST", "/sessions/{s}/write"),
    ("POST", "/sessions/{s}/close-stdin"),
    ("POST", "/sessions/{s}/resize"),
    ("POST", "/sessions/{s}/signal"),
    ("POST", "/sessions/{s}/kill"),
    ("GET", "/sessions/{s}/result"),
    ("DELETE", "/sessions/{s}"),
    ("GET", "/contexts"),
    ("POST", "/contexts/{c}/interrupt"),
    ("POST", "/contexts/{c}/restart"),
    ("DELETE", "/contexts/{c}"),
    ("GET", "/metadata"),
    ("POST", "/snapshot"),
    ("POST", "/fork"),
    ("POST", "/run"),
    ("POST", "/sessions"),
    ("POST", "/contexts"),
    ("DELETE", ""),
];

/// The body with which a request would succeed for the owner.
fn body(below: &str) -> Vec<u8> {
    let body = match below.rsplit('/').next().unwrap() {
        "write" => json!({"data": "x"}),
        "resize" => json!({"cols": 9, "rows": 9}),
        "signal" => json!({"signal": "TERM"}),
        "run" | "sessions" => json!({"cmd": "true"}),
        "contexts" => json!({"language": "python"}),
        _ => json!({}),
    };
    body.to_string().into_bytes()
}

/// Starts a service with two tokens, which keeps its files in `directory`, and returns a client of each.
pub fn two_tokens(
    target: &Target,
    directory: &Path,
) -> Result<(Service, [EngineClient; 2]), Unexercised> {
    let own = target.own()?;
    target.engine()?;
    let file = directory.join("tokens");
    fs::write(&file, TOKENS.map(|(name, token)| format!("{name} {token}\n")).concat()).unwrap();
    let setup = own.another().env("AUTH_TOKENS_FILE", &file);
    let service = setup.env("ENGINE_STORE_DIR", directory.join("engine")).start();
    let clients = TOKENS.map(|(_, token)| {
        let header = format!("authorization: Bearer {token}\r\n");
        EngineClient::new(service.address, header, None)
    });
    Ok((service, clients))
}

pub fn ids_of_another_token(target: &Target) -> Result<(), Unexercised> {
    let directory = tempfile::tempdir().unwrap();
    let (_service, [one, two]) = two_tokens(target, directory.path())?;
    let workspace = one.create(&json!({"exec_id": "shared"}));
    let session = workspace.start(&json!({"cmd": "cat"}));
    let session = session.rsplit('/').next().unwrap();
    let context = workspace.post("/contexts", &json!({"language": "python"})).json();
    let context = context["context_id"].as_str().unwrap_or("c_0").to_owned();
    let snapshot = workspace.post("/snapshot", &json!({})).json()["snapshot_id"].clone();
    assert_eq!(one.ask("POST", "/v1/artifacts/kept", b"one's").status, 201);
    let theirs = two.create(&json!({}));
    // An id of another token is answered like an unknown id.
    let nowhere = format!("{WORKSPACES}/ws_{}", "0".repeat(32));
    for (method, below) in BELOW {
        let below = below.replace("{s}", session).replace("{c}", &context);
        let asked = two.ask(method, &format!("{}{below}", workspace.path), &body(&below));
        let absent = two.ask(method, &format!("{nowhere}{below}"), &body(&below));
        assert_eq!((asked.status, asked.json()), (404, absent.json()), "{method} {below}");
        // A session or a context of another workspace, under one's own.
        if below.contains(session) || below.contains(&context) {
            let moved = two.ask(method, &format!("{}{below}", theirs.path), &body(&below));
            assert_eq!(moved.status, 404, "{method} {below}: {}", moved.json());
        }
    }
    let stolen = two.at(&workspace.path);
    for door in Door::ALL {
        let reply = promptly("a refusal", || door.knock(&stolen, "work/x"));
        reply.assert_error(404, "workspace.not_found");
    }
    let snapshot_path = format!("/v1/snapshots/{}", snapshot.as_str().unwrap());
    two.get(&snapshot_path).assert_error(404, "snapshot.not_found");
    two.ask("DELETE", &snapshot_path, b"").assert_error(404, "snapshot.not_found");
    let create = two.post(WORKSPACES, &json!({"snapshot": snapshot}));
    create.assert_error(404, "snapshot.not_found");
    two.get("/v1/artifacts/kept").assert_error(404, "artifact.not_found");
    assert_eq!(two.ask("DELETE", "/v1/artifacts/kept", b"").status, 204);
    assert_eq!(two.get("/v1/artifacts").json()["artifacts"], json!([]));
    assert_eq!(two.get("/v1/snapshots").json()["snapshots"], json!([]));
    let listed = two.get(&format!("{WORKSPACES}?exec_id=shared")).json();
    assert_eq!(listed["workspaces"], json!([]));
    for body in [
        json!({"workspace_id": workspace.id(), "code_blocks": [{"code": "1", "language": "bash"}]}),
        json!({"workspace_id": workspace.id(), "context_id": context, "stateful": true,
            "code_blocks": [{"code": "1", "language": "python"}]}),
    ] {
        two.post("/v1/execute", &body).assert_error(404, "workspace.not_found");
    }
    let acquired = two.made(&two.post(WORKSPACES, &json!({"exec_id": "shared", "acquire": true})));
    assert_ne!(acquired.path, workspace.path);
    // Nothing of it has changed.
    assert_eq!(one.get("/v1/artifacts/kept").body, b"one's");
    assert_eq!(one.get(&snapshot_path).status, 200);
    assert_eq!(workspace.get(&format!("/sessions/{session}")).json()["status"], "running");
    let mut names = workspace.names();
    names.retain(|name| !name.starts_with("runs/"));
    assert_eq!(names, ["metadata.json", "out", "runs", "skills", "work"]);
    Ok(())
}

/// Requests that stage, collect, save, park or copy what lies in a workspace, with bodies that the owner may send.
fn keeping_requests() -> [(&'static str, &'static str, Value); 13] {
    let input = json!({"inputs": [{"from": "workspace://work/x", "to": "work/y"}]});
    let skill = json!({"digest": "0".repeat(64), "to": "skills/s"});
    [
        ("POST", "/save", json!({})),
        ("POST", "/snapshot", json!({"persist": true})),
        ("POST", "/fork", json!({"policy": {"persist": true}})),
        ("POST", "/stage", input),
        ("POST", "/stage-directory", skill),
        ("POST", "/collect", json!({"patterns": ["work/**"]})),
        ("POST", "/collect-outputs", json!({"globs": ["work/**"], "save": true})),
        ("POST", "/restart", json!({})),
        ("GET", "/processes", json!(null)),
        ("POST", "/processes/1/signal", json!({"signal": "KILL"})),
        ("GET", "/egress", json!(null)),
        ("PATCH", "", json!({"ttl_ms": 1})),
        ("DELETE", "?purge=true", json!(null)),
    ]
}

pub fn kept_things_of_another_token(target: &Target) -> Result<(), Unexercised> {
    let directory = tempfile::tempdir().unwrap();
    let (_service, [one, two]) = two_tokens(target, directory.path())?;
    let kept = json!({"policy": {"persist": true}, "artifact_session": {"app": "a"}});
    let [live, parked] = [one.create(&kept), one.create(&kept)];
    live.put("work/x", b"one's");
    let taken = live.post("/snapshot", &json!({"persist": true})).json()["snapshot_id"].clone();
    let snapshot = format!("/v1/snapshots/{}", taken.as_str().unwrap());
    assert_eq!(one.ask("POST", "/v1/artifacts/kept?app=a", b"one's").status, 201);
    assert_eq!(one.ask("DELETE", &parked.path, b"").json()["persisted"], true);
    let nowhere = format!("{WORKSPACES}/ws_{}", "0".repeat(32));
    for (method, below, body) in keeping_requests() {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        for of in [&live, &parked] {
            let [asked, absent] = [&of.path, &nowhere]
                .map(|path| promptly(below, || two.ask(method, &format!("{path}{below}"), &body)));
            assert_eq!((asked.status, asked.json()), (404, absent.json()), "{method} {below}");
        }
    }
    for of in [&live, &parked] {
        let target = format!("{}/stage-directory?to=skills/s", of.path);
        let kind = "content-type: application/x-tar\r\n";
        let sent = two.ask_with("POST", &target, kind, &archives::of_one_file("x"));
        sent.assert_error(404, "workspace.not_found");
    }
    // What it takes from elsewhere is its own.
    let theirs = two.create(&json!({"artifact_session": {"app": "a"}}));
    for from in ["artifact://kept", "artifact://kept@0"] {
        let staged = theirs.post("/stage", &json!({"inputs": [{"from": from}]}));
        staged.assert_error(404, "input.not_found");
    }
    two.post(WORKSPACES, &json!({"snapshot": taken})).assert_error(404, "snapshot.not_found");
    two.ask("DELETE", &snapshot, b"").assert_error(404, "snapshot.not_found");
    for status in ["active", "parked"] {
        let listed = two.get(&format!("{WORKSPACES}?status={status}")).json();
        let listed = listed["workspaces"].as_array().unwrap().clone();
        assert!(listed.iter().all(|view| view["workspace_id"] == theirs.id()), "{listed:?}");
    }
    // Nothing of it has changed.
    assert_eq!(one.get(&snapshot).status, 200);
    assert_eq!(live.get("/files?path=work/x").body, b"one's");
    assert_eq!(
        (live.get("").status, live.get("").json()["status"].clone()),
        (200, json!("active"))
    );
    assert_eq!(parked.get("").json()["status"], "parked");
    for of in [&live, &parked] {
        assert_eq!(one.ask("DELETE", &format!("{}?purge=true", of.path), b"").status, 200);
    }
    Ok(())
}

pub fn two_workspaces(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let (attacked, attacking) = (client.create(&json!({})), client.create(&json!({})));
    let marker = Marker::new();
    attacked.put("work/others", b"theirs");
    attacked.sh("chmod -R 777 work; chmod 666 work/others");
    let session = attacked.start_sh("echo up; sleep 1000; exit 7", &format!("{}1", marker.word()));
    let own = attacking.start_sh("echo up; sleep 1000; exit 7", &format!("{}2", marker.word()));
    if target.own().is_ok() {
        wait_until("both programs", SOON, || host_uids(&marker).len() >= 2);
        let mut uids = host_uids(&marker);
        uids.sort_unstable();
        uids.dedup();
        assert_eq!(uids.len(), 2, "both programs have the host uid {uids:?}");
    }
    let script =
        json!({"cmd": "python3", "args": ["-c", script("reach_others.py")], "timeout_ms": 20_000});
    let result = attacking.run(&script);
    assert_eq!(
        (&result["exit_code"], &result["stdout"]),
        (&json!(0), &json!("reached\n")),
        "{result}"
    );
    // Nor does a program of the same workspace reach it.
    for (workspace, session) in [(&attacked, session), (&attacking, own)] {
        assert_eq!(workspace.get(&session).json()["status"], "running");
    }
    assert_eq!(attacked.get("/files?path=work/others").body, b"theirs");
    Ok(())
}

/// The host uids of the processes with this marker.
fn host_uids(marker: &Marker) -> Vec<u32> {
    let uid = |pid: i32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        ids.split_whitespace().next()?.parse().ok()
    };
    marker.bearers().into_iter().filter_map(uid).collect()
}
