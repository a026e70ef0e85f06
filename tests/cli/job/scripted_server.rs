//! `cofferdam job --server` with a server whose responses are scripted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::support::JobDirectory;
use crate::support::{Call, cofferdam, ends_within, pid_of};

/// A received request.
struct ReceivedRequest {
    /// Method and path.
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A server with scripted responses, and the requests that it received.
struct ScriptedServer {
    url: String,
    asked: Receiver<ReceivedRequest>,
}

impl ScriptedServer {
    /// Answers each kind of request in order and repeats the last answer. An answer has a start of
    /// the request line, a status and a body; status 0 means an event stream.
    fn new(answers: Vec<(&str, u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<_> = answers
            .into_iter()
            .map(|(line, status, body)| (line.to_owned(), status, body))
            .collect();
        let (sender, asked) = channel();
        thread::spawn(move || {
            let mut left = answers;
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let request = read_request(&socket);
                let fits = |(line, _, _): &(String, u16, String)| request.line.starts_with(line);
                let index = left.iter().position(fits);
                let is_last = index.is_some_and(|index| {
                    !left[index + 1..].iter().any(|(line, ..)| *line == left[index].0)
                });
                let answer = match index {
                    Some(index) if is_last => left[index].clone(),
                    Some(index) => left.remove(index),
                    None => (String::new(), 404, error("job.not_found")),
                };
                if sender.send(request).is_err() {
                    return;
                }
                let _ = socket.write_all(&bytes_of(answer.1, &answer.2));
            }
        });
        Self { url, asked }
    }

    fn job(&self, words: &str) -> Call {
        cofferdam("job").words(words).arg("--server").arg(&self.url)
    }

    fn run(&self) -> Call {
        self.job("run -").fed(JobDirectory::new(&[]).request(&["true"]).to_string())
    }

    /// The next request that it received.
    fn next(&self) -> ReceivedRequest {
        self.asked.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

fn read_request(socket: &TcpStream) -> ReceivedRequest {
    let mut reader = BufReader::new(socket);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let line = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    ReceivedRequest { line, headers, body: String::from_utf8(body).unwrap() }
}

fn bytes_of(status: u16, body: &str) -> Vec<u8> {
    let head = match status {
        0 => "HTTP/1.1 200 x\r\nContent-Type: text/event-stream".to_owned(),
        302 => "HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0".to_owned(),
        status => format!("HTTP/1.1 {status} x\r\nContent-Length: {}", body.len()),
    };
    format!("{head}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

fn error(code: &str) -> String {
    json!({"code": code, "message": "words", "details": {}}).to_string()
}

fn job_json(status: &str) -> String {
    json!({"job_id": "job_1", "status": status}).to_string()
}

fn live() -> String {
    json!({"job_id": "job_1", "status": "running", "queued_at": "q", "started_at": null})
        .to_string()
}

fn result(status: &str) -> String {
    let stream = json!({
        "text": "", "truncated": false, "bytes": 0, "sha256": "ab".repeat(32), "encoding": "utf-8",
    });
    json!({
        "job_id": "job_1", "status": status, "trace": {},
        "command": {"argv": ["true"], "cwd": ".", "executable": null},
        "exit_code": null, "signal": null, "stdout": stream, "stderr": stream,
        "artifacts": [], "artifacts_omitted": [], "snapshot": null,
        "policy": {
            "decision": "allowed", "reasons": [], "version": "v1:", "network": "none",
            "network_enforced": false,
        }, "egress": [],
        "usage": null, "enforced": {}, "not_enforced": [],
        "replay": {"request": "v1:", "snapshot": null, "result": "v1:"},
        "timing": {"queued_at": "q", "started_at": "s", "finished_at": "f", "duration_ms": 1},
        "error": null,
    })
    .to_string()
}

const POST: &str = "POST /v1/jobs";
const GET: &str = "GET /v1/jobs/";

#[test]
fn a_job_is_followed_to_its_result_over_a_stream_that_breaks() {
    let events =
        |last: &str| format!("event: status\nid: o0.e0\ndata: {}\n\n{last}", job_json("running"));
    let first = events("event: stdout\nid: o3.e0\ndata: {\"text\":\"abc\"}\n\nevent: stdo");
    let second = "event: result\nid: o3.e0\ndata: {}\n\n".to_owned();
    let server = ScriptedServer::new(vec![
        (POST, 202, job_json("queued")),
        (GET, 0, first),
        (GET, 200, live()),
        (GET, 0, second),
        (GET, 200, result("completed")),
    ]);
    let done = server.run().run().exits(0).quietly();
    assert_eq!(done.json(), serde_json::from_str::<Value>(&result("completed")).unwrap());
    let post = server.next();
    let request: Value = serde_json::from_str(&post.body).unwrap();
    let id = request["job_id"].as_str().unwrap();
    assert!(post.header("idempotency-key").is_some_and(|key| key.len() > 30));
    let path = format!("GET /v1/jobs/{id}");
    let events = format!("{path}/events");
    let asked: Vec<ReceivedRequest> = (0..4).map(|_| server.next()).collect();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(lines, [&events, &path, &events, &path]);
    assert_eq!(asked[0].header("last-event-id"), None);
    assert_eq!(asked[2].header("last-event-id"), Some("o3.e0"));
}

#[test]
fn a_server_without_events_is_polled() {
    let none = (GET, 404, error("job.not_found"));
    let server = ScriptedServer::new(vec![
        (POST, 202, job_json("queued")),
        none.clone(),
        (GET, 200, live()),
        // A short failure of the server does not end the polling.
        none.clone(),
        (GET, 502, "<html>".to_owned()),
        none,
        (GET, 200, live()),
        (GET, 200, result("timed_out")),
    ]);
    server.run().run().exits(124).quietly();
}

#[test]
fn an_error_of_the_server_is_printed_unchanged_with_its_exit_code() {
    for (status, code, exit_code) in [
        (422, "validation.invalid_request", 2),
        (413, "validation.too_large", 2),
        (401, "auth.required", 1),
        (409, "job.conflict", 1),
        (503, "queue.full", 1),
        (503, "queue.closed", 1),
    ] {
        let server = ScriptedServer::new(vec![(POST, status, error(code))]);
        let done = server.run().run().exits(exit_code).prints("");
        assert_eq!(done.error(), serde_json::from_str::<Value>(&error(code)).unwrap());
    }
    let server = ScriptedServer::new(vec![]);
    for command in ["status", "result", "artifacts", "cancel"] {
        let done = server.job(command).arg("job_1").run().exits(1).prints("");
        assert_eq!(done.error()["code"], "job.not_found", "{command}");
    }
}

#[test]
fn a_server_without_job_service_is_reported() {
    for (status, body) in [(200, "<html>"), (502, "<html>"), (302, ""), (200, "{}"), (404, "")] {
        let server = ScriptedServer::new(vec![(GET, status, body.to_owned())]);
        let done = server.job("cancel").arg("job_1").run().exits(1).prints("");
        done.holds(done.stderr().lines().count() == 1, "one line");
        let server = ScriptedServer::new(vec![("GET /v1/jobs?", status, body.to_owned())]);
        server.job("list").run().exits(1).prints("").complains("want a cofferdam service");
    }
    // A port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let call = cofferdam("job list --server").arg(format!("http://{closed}"));
    call.run().exits(1).prints("").complains("connection refused; is the service running?");
}

#[test]
fn a_token_is_not_sent_to_a_redirect_and_a_readable_file_gets_a_warning() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("token");
    fs::write(&file, "secret-1\nsecret-2\n").unwrap();
    for (mode, words) in [(0o600, ""), (0o640, "others can read it")] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let server = ScriptedServer::new(vec![("GET /v1/jobs?", 302, String::new())]);
        let done = server.job("list").arg("--token-file").arg(&file).run().exits(1).prints("");
        done.holds(done.stderr().contains(words), words);
        done.holds(!done.stderr().contains("secret"), "no token in it");
        assert_eq!(server.next().header("authorization"), Some("Bearer secret-1"));
    }
}

#[test]
fn responses_of_a_server_are_printed_like_those_of_a_store() {
    let artifact = json!({
        "path": "out/a b", "bytes": 3, "uri": "file:///x", "truncated": false,
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    });
    let artifacts = json!({"artifacts": [artifact]}).to_string();
    let page = json!({"jobs": [], "next_cursor": "c"}).to_string();
    let server = ScriptedServer::new(vec![
        ("GET /v1/jobs?", 200, page.clone()),
        ("GET /v1/jobs/job_1/artifacts/", 200, "abc".to_owned()),
        ("GET /v1/jobs/job_1/artifacts", 200, artifacts.clone()),
        ("GET /v1/jobs/job_1", 200, result("failed")),
        ("GET /v1/jobs/job_2", 200, live()),
        ("POST /v1/jobs/job_1/cancel", 202, job_json("running")),
    ]);
    let run = |words: &str| server.job(words).run().exits(0).quietly();
    run("list --status failed --limit 7 --cursor a+b").prints(&(page + "\n"));
    assert_eq!(server.next().line, "GET /v1/jobs?limit=7&status=failed&cursor=a%2Bb");
    let line = run("status job_1").json();
    assert_eq!(
        line,
        json!({
            "job_id": "job_1", "status": "failed", "queued_at": "q", "started_at": "s",
            "finished_at": "f",
        })
    );
    run("status job_2").prints(&(live_in_order() + "\n"));
    assert_eq!(run("result job_1").json()["status"], "failed");
    let error = server.job("result job_2").run().exits(1).prints("").error();
    assert_eq!(error["code"], "job.conflict");
    assert_eq!(run("artifacts job_1").json().to_string(), artifacts);
    let get = server.job("artifacts job_1").arg("--get").arg("out/a b").run().exits(0).quietly();
    get.prints("abc");
    assert_eq!(run("cancel job_1").json(), json!({"job_id": "job_1", "status": "running"}));
    let asked: Vec<String> = (0..8).map(|_| server.next().line).collect();
    assert!(asked.contains(&"GET /v1/jobs/job_1/artifacts/out/a%20b".to_owned()), "{asked:?}");
}

fn live_in_order() -> String {
    r#"{"job_id":"job_1","status":"running","queued_at":"q","started_at":null}"#.to_owned()
}

#[test]
fn a_signal_cancels_the_job_on_the_server() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let server = ScriptedServer::new(vec![
            ("POST /v1/jobs/", 202, job_json("running")),
            (POST, 202, job_json("queued")),
            (GET, 200, live()),
        ]);
        let place = JobDirectory::new(&[]);
        let file = place.path().join("request.json");
        fs::write(&file, place.request(&["true"]).to_string()).unwrap();
        let mut child = server.job("run").arg(&file).spawn();
        let post = server.next();
        let request: Value = serde_json::from_str(&post.body).unwrap();
        server.next();
        kill(pid_of(&child), signal).unwrap();
        let cancel = format!("POST /v1/jobs/{}/cancel", request["job_id"].as_str().unwrap());
        while server.next().line != cancel {}
        // The server never reports the end of the job; a second signal ends the wait.
        kill(pid_of(&child), signal).unwrap();
        assert_eq!(ends_within(&mut child, Duration::from_secs(2)).code(), Some(code));
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.stdout.is_empty() && stderr.contains("cofferdam job status"), "{stderr}");
    }
}

#[test]
fn a_job_canceled_by_a_signal_prints_its_result() {
    let server = ScriptedServer::new(vec![
        ("POST /v1/jobs/", 202, job_json("running")),
        (POST, 202, job_json("queued")),
        (GET, 404, error("job.not_found")),
        (GET, 200, live()),
        (GET, 404, error("job.not_found")),
        (GET, 200, live()),
        (GET, 404, error("job.not_found")),
        (GET, 200, live()),
        (GET, 200, result("canceled")),
    ]);
    let place = JobDirectory::new(&[]);
    let file = place.path().join("request.json");
    fs::write(&file, place.request(&["true"]).to_string()).unwrap();
    let mut child = server.job("run").arg(&file).spawn();
    server.next();
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    assert_eq!(ends_within(&mut child, Duration::from_secs(8)).code(), Some(130));
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["status"], output.stderr.len()), (&json!("canceled"), 0));
}

#[test]
fn control_characters_of_a_server_are_escaped() {
    let answer = "{\"job_id\":\"job_1\",\"status\":\"\u{9b}2J\u{7f}\"}".to_owned();
    let refusal = "{\"code\":\"job.conflict\",\"message\":\"\u{9b}2J\",\"details\":{}}".to_owned();
    for (status, body) in [(202, answer), (409, refusal)] {
        let server = ScriptedServer::new(vec![("POST /v1/jobs/job_1/cancel", status, body)]);
        let done = server.job("cancel job_1").run().exits(1).prints("");
        let stderr = done.stderr();
        done.holds(stderr.contains("2J") && !stderr.contains('\u{9b}'), "an escaped control");
    }
}
