//! The request of each verb.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::recording_server::RecordingServer;

const S: &str = "/v1/workspaces/w/sessions/s";

/// A command line, its request, and the body that it has.
type VerbRow = (&'static str, String, Option<Value>);

fn row(words: &'static str, method: &str, path: &str, body: Option<Value>) -> VerbRow {
    (words, format!("{method} {path}"), body)
}

#[track_caller]
fn check(rows: Vec<VerbRow>) {
    let server = RecordingServer::json(200, r#"{"b":1,"a":[2]}"#);
    for (words, line, body) in rows {
        server.workspace(words).run().exits(0).quietly().prints("{\"b\":1,\"a\":[2]}\n");
        let request = server.next();
        assert_eq!(request.line, line, "{words}");
        let media_type = body.as_ref().map(|_| "application/json");
        let sent =
            (!request.body.is_empty()).then(|| serde_json::from_slice(&request.body).unwrap());
        assert_eq!(sent, body, "{words}");
        if media_type.is_some() {
            assert_eq!(request.header("content-type"), media_type, "{words}");
        }
    }
}

#[test]
fn verbs_for_workspaces_send_the_requests_of_the_contract() {
    let all = json!({
        "exec_id": "e", "acquire": true, "sandbox": "workspace", "path": "/srv/x", "snapshot": "n",
        "policy": {"isolated": false, "persist": true, "storage": "disk", "max_disk_bytes": 2 << 20},
        "max_inodes": 9, "env": {"A": "1", "B": "x=y"}, "ttl_ms": 90_000, "idle_ms": 5,
        "artifact_session": {"app": "a", "user": "u", "session": "s"},
        "limits": {
            "cpu_percent": 50, "memory_mb": 64, "max_pids": 8, "cpu_time_ms": 1500,
            "stdout_bytes": 65_536, "stderr_bytes": 0,
        },
    });
    let w = "/v1/workspaces/w";
    check(vec![
        row("describe", "GET", "/v1/engine", None),
        row("create", "POST", "/v1/workspaces", Some(json!({}))),
        row(
            "create --exec-id e --acquire --sandbox workspace --path /srv/x --snapshot n --isolated=false \
             --persist --storage disk --max-disk-bytes 2MiB --max-inodes 9 --env A=1 --env B=x=y --ttl-ms 1.5m \
             --idle-ms 5 --app a --user u --session s --cpu-percent 50 --memory-mb 64 --max-pids 8 \
             --cpu-time-ms 1500 --stdout-bytes 64KiB --stderr-bytes 0",
            "POST",
            "/v1/workspaces",
            Some(all),
        ),
        row("list", "GET", "/v1/workspaces", None),
        row(
            "list --exec-id a+b&c --status parked --limit 7 --cursor c",
            "GET",
            "/v1/workspaces?exec_id=a%2Bb%26c&status=parked&limit=7&cursor=c",
            None,
        ),
        row("show w", "GET", w, None),
        row("show ../x?y", "GET", "/v1/workspaces/%2E%2E%2Fx%3Fy", None),
        row("rm w", "DELETE", w, None),
        row("rm w --purge", "DELETE", "/v1/workspaces/w?purge=true", None),
        row("fork w", "POST", "/v1/workspaces/w/fork", Some(json!({}))),
        row(
            "fork w --persist=false --memory-mb 5",
            "POST",
            "/v1/workspaces/w/fork",
            Some(json!({"policy": {"persist": false}, "limits": {"memory_mb": 5}})),
        ),
        row("save w", "POST", "/v1/workspaces/w/save", None),
        row("snapshot w", "POST", "/v1/workspaces/w/snapshot", Some(json!({}))),
        row(
            "snapshot w --persist",
            "POST",
            "/v1/workspaces/w/snapshot",
            Some(json!({"persist": true})),
        ),
        row("snapshots --limit 2 --cursor c", "GET", "/v1/snapshots?limit=2&cursor=c", None),
        row("snapshot-rm snap_1", "DELETE", "/v1/snapshots/snap_1", None),
        row("ps w", "GET", "/v1/workspaces/w/processes", None),
        row(
            "signal w 42 TERM",
            "POST",
            "/v1/workspaces/w/processes/42/signal",
            Some(json!({"signal": "TERM"})),
        ),
        row("restart w", "POST", "/v1/workspaces/w/restart", None),
    ]);
}

#[test]
fn verbs_for_files_send_the_requests_of_the_contract() {
    check(vec![
        row("ls w", "GET", "/v1/workspaces/w/list?path=.", None),
        row(
            "ls w out/a+b --depth 3 --limit 2 --cursor c",
            "GET",
            "/v1/workspaces/w/list?path=out/a%2Bb&depth=3&limit=2&cursor=c",
            None,
        ),
        row("stat w /tmp/x", "GET", "/v1/workspaces/w/stat?path=/tmp/x", None),
        row("mv w a b", "POST", "/v1/workspaces/w/move", Some(json!({"from": "a", "to": "b"}))),
        row(
            "mv w a b --overwrite",
            "POST",
            "/v1/workspaces/w/move",
            Some(json!({"from": "a", "to": "b", "overwrite": true})),
        ),
        row("del w a", "DELETE", "/v1/workspaces/w/files?path=a", None),
        row("del w a --recursive", "DELETE", "/v1/workspaces/w/files?path=a&recursive=true", None),
        row(
            "stage-dir w host:///srv/x skills/x --read-only",
            "POST",
            "/v1/workspaces/w/stage-directory",
            Some(json!({"src": "host:///srv/x", "to": "skills/x", "read_only": true})),
        ),
        row(
            "stage-dir w skills/x --digest d --allow-mount",
            "POST",
            "/v1/workspaces/w/stage-directory",
            Some(json!({"digest": "d", "to": "skills/x", "allow_mount": true})),
        ),
        row(
            "collect w out/** *.txt",
            "POST",
            "/v1/workspaces/w/collect",
            Some(json!({"patterns": ["out/**", "*.txt"]})),
        ),
    ]);
}

#[test]
fn verbs_for_programs_send_the_requests_of_the_contract() {
    let start = |body| Some(body);
    let path = |rest: &str| format!("{S}{rest}");
    check(vec![
        row(
            "start w -- sh -c true",
            "POST",
            "/v1/workspaces/w/sessions",
            start(json!({"cmd": "sh", "args": ["-c", "true"]})),
        ),
        row(
            "start w --tty --cols 100 --rows 30 --env A=1 --cwd sub --stdin hi --encoding utf-8 --skill k \
             --timeout-ms 2s --max-pids 3 -- bash",
            "POST",
            "/v1/workspaces/w/sessions",
            start(json!({
                "cmd": "bash", "args": [], "tty": true, "cols": 100, "rows": 30, "env": {"A": "1"},
                "cwd": "sub", "stdin": "hi", "encoding": "utf-8", "skill": "k", "timeout_ms": 2000,
                "limits": {"max_pids": 3},
            })),
        ),
        row("poll w s", "POST", &path("/poll"), Some(json!({}))),
        row(
            "poll w s --limit -1 --wait-ms 500ms",
            "POST",
            &path("/poll"),
            Some(json!({"limit": -1, "wait_ms": 500})),
        ),
        row("log w s", "GET", &path("/log"), None),
        row("log w s --offset -3 --limit 5", "GET", &path("/log?offset=-3&limit=5"), None),
        row("write w s hi", "POST", &path("/write"), Some(json!({"data": "hi"}))),
        row(
            "write w s aGk= --encoding base64 --newline",
            "POST",
            &path("/write"),
            Some(json!({"data": "aGk=", "encoding": "base64", "newline": true})),
        ),
        row("kill w s", "POST", &path("/kill"), Some(json!({}))),
        row("kill w s --grace-ms 0", "POST", &path("/kill"), Some(json!({"grace_ms": 0}))),
        row("close w s", "DELETE", &path(""), None),
        row("state w s", "GET", &path(""), None),
        row("result w s", "GET", &path("/result"), None),
    ]);
}

#[test]
fn files_that_hold_parts_of_a_body_are_sent_in_it() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(place.path().join(name), bytes).unwrap();
        place.path().join(name)
    };
    let network = file("network", br#"{"allow": ["example.org"]}"#);
    let binary = file("binary", b"a\xff");
    let spec = file("spec", br#"{"globs": ["out/**"], "Save": null}"#);
    let server = RecordingServer::json(200, "{}");
    let inputs = json!({"inputs": [{"from": "artifact://a"}]});
    let sent = |call: crate::support::Call| {
        call.run().exits(0).quietly();
        let request = server.next();
        (request.line, serde_json::from_slice::<Value>(&request.body).unwrap())
    };
    let (_, body) = sent(server.workspace("create --max-inodes 9 --network").arg(network));
    assert_eq!(body, json!({"network": {"allow": ["example.org"]}, "max_inodes": 9}));
    // The file holds the list, or the whole body.
    for text in [inputs["inputs"].to_string(), inputs.to_string()] {
        let (line, body) = sent(server.workspace("stage w -").fed(text));
        assert_eq!((line.as_str(), &body), ("POST /v1/workspaces/w/stage", &inputs));
    }
    let (line, body) = sent(server.workspace("collect w/x --spec").arg(spec));
    assert_eq!(line, "POST /v1/workspaces/w%2Fx/collect-outputs");
    assert_eq!(body, json!({"globs": ["out/**"], "Save": null}));
    let (_, body) = sent(server.workspace("start w --stdin-file - -- cat").fed("é\n"));
    assert_eq!(body, json!({"cmd": "cat", "args": [], "stdin": "é\n"}));
    let (_, body) = sent(server.workspace("start w --stdin-file").arg(binary).words("-- cat"));
    assert_eq!(body, json!({"cmd": "cat", "args": [], "stdin": "Yf8=", "encoding": "base64"}));
}

#[test]
fn a_file_is_sent_as_it_is_and_a_directory_as_an_archive() {
    let place = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let file = place.path().join("file");
    fs::write(&file, &bytes).unwrap();
    fs::create_dir(place.path().join("skill")).unwrap();
    fs::write(place.path().join("skill/run.sh"), "echo hi\n").unwrap();
    let server = RecordingServer::json(201, "");
    let put = |call: crate::support::Call| {
        call.run().exits(0).quietly().prints("{}\n");
        server.next()
    };
    let request = put(server.workspace("put w").arg(&file).words("a/b.txt --mode 0755"));
    assert_eq!(request.line, "PUT /v1/workspaces/w/files?path=a/b.txt&mode=0755");
    assert_eq!((request.header("content-length"), request.body == bytes), (Some("200000"), true));
    let request = put(server.workspace("put w - a").fed(bytes.clone()));
    assert_eq!(request.line, "PUT /v1/workspaces/w/files?path=a");
    assert!(request.body == bytes);
    let skill = place.path().join("skill");
    let request = put(server.workspace("stage-dir w --read-only").arg(&skill).words("skills/x"));
    let line = "POST /v1/workspaces/w/stage-directory?read_only=true&to=skills/x";
    assert_eq!(request.line, line);
    assert_eq!(request.header("content-type"), Some("application/x-tar"));
    let archive = place.path().join("archive");
    fs::write(&archive, &request.body).unwrap();
    let read = Command::new("tar").arg("-xOf").arg(&archive).arg("run.sh").output();
    assert_eq!(read.unwrap().stdout, b"echo hi\n");
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_breaks_the_request_off() {
    let server = RecordingServer::json(200, "{}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.args(["workspace", "put", "w", "-", "a", "--server", &server.url]);
    // Reading a directory fails.
    let done = command.stdin(fs::File::open("/").unwrap()).output().unwrap();
    assert_eq!((done.status.code(), done.stdout.len()), (Some(1), 0), "{done:?}");
    assert!(server.is_unused(), "a whole request arrived");
}

#[test]
fn wrong_words_and_files_are_usage_errors_and_send_nothing() {
    let place = tempfile::tempdir().unwrap();
    let not_json = place.path().join("not-json");
    fs::write(&not_json, "{").unwrap();
    let server = RecordingServer::json(200, "{}");
    for (words, complaint) in [
        ("frobnicate", "frobnicate"),
        ("", "requires a subcommand"),
        ("show", "<ID>"),
        ("create extra", "extra"),
        ("create --ttl-ms soon", "--ttl-ms"),
        ("create --max-inodes -1", "-1"),
        ("create --max-disk-bytes lots", "--max-disk-bytes"),
        ("create --env A", "--env"),
        ("create --isolated=perhaps", "--isolated"),
        ("create --network /no/such/file", "--network: /no/such/file: no such file"),
        ("run w", "<CMD>"),
        ("run w true", "true"),
        ("run w --stdin a --stdin-file b -- cat", "--stdin"),
        ("collect w", "PATTERN"),
        ("collect w a --spec b", "--spec"),
        ("stage-dir w x", "<DIR>"),
        ("stage-dir w --digest d", "<TO>"),
        ("stage-dir w a b --digest d", "--digest"),
        ("stage-dir w /no/such/dir x", "DIR: /no/such/dir: no such file"),
        ("stage-dir w /etc/hostname x", "DIR: /etc/hostname: not a directory"),
        ("put w /no/such/file x", "FILE: /no/such/file: no such file"),
        ("put w /etc x", "FILE: /etc: not a regular file"),
        ("stage w /no/such/file", "FILE: /no/such/file"),
        ("poll w s --limit x", "--limit"),
        ("attach w", "<SESSION>"),
    ] {
        server.workspace(words).run().exits(2).prints("").complains(complaint);
    }
    server.workspace("show").arg("").run().exits(2).complains("not empty");
    server.workspace("stage w").arg(not_json).run().exits(2).complains("not JSON");
    assert!(server.is_unused());
}

#[test]
fn the_server_and_its_token_are_options_of_every_verb() {
    let place = tempfile::tempdir().unwrap();
    let token = place.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let server = RecordingServer::json(200, "{}");
    for words in ["list", "put w /etc/hostname a", "create", "state w s"] {
        let call = crate::support::cofferdam("workspace").words(words).arg("--server");
        let call = call.arg(&server.url).arg("--token-file").arg(&token);
        let done = call.env("COFFERDAM_SERVER", "http://127.0.0.1:1").run().exits(0);
        done.holds(!done.stderr().contains("secret"), "no token in it");
        assert_eq!(server.next().header("authorization"), Some("Bearer secret"), "{words}");
    }
    crate::support::cofferdam("workspace list").run().exits(2).complains("COFFERDAM_SERVER");
}
