//! Evaluations over HTTP: a request, its result, and the state after the service was killed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::{Service, Setup};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tasks::write;

/// Serves one task for as long as the process lives; returns its URL.
fn serve_task(directory: &Path) -> String {
    let root = directory.join("task");
    write(
        &root,
        &[
            ("workspace.yaml", "files: files\nlanguage: python\n"),
            ("prompt.md", "Write done.\n"),
            ("files/a.txt", "open\n"),
            ("tests/fail_to_pass_1.sh", "grep -q done a.txt\n"),
            ("tests/pass_to_pass_1.sh", "test -f a.txt\n"),
        ],
    );
    let archive = directory.join("task.tar");
    let made = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status();
    assert!(made.unwrap().success());
    let body = fs::read(archive).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/task.tar", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut head = [0; 4096];
            // One read is enough: the request is small, and a client with a cut request fails.
            let _ = client.read(&mut head);
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            let _ = client.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    url
}

fn start(directory: &Path) -> Service {
    let tokens = directory.join("tokens");
    fs::write(&tokens, "one first-token-0123456789\ntwo second-token-0123456789\n").unwrap();
    Setup::shell()
        .arg("--store-dir")
        .arg(directory.join("store"))
        .env("WORKSPACE_BASE", directory.join("sessions"))
        .env("EVAL_HOSTS_ALLOW", "127.0.0.1")
        .env("MAX_CONCURRENT_EVALS", "1")
        .env("AUTH_TOKENS_FILE", tokens)
        .start()
}

const ONE: &str = "authorization: Bearer first-token-0123456789\r\n";
const TWO: &str = "authorization: Bearer second-token-0123456789\r\n";

fn submit(service: &Service, url: &str, code: &str) -> cofferdam_test_server::client::Answer {
    let body = json!({ "agent_code": code, "task_url": url, "labels": {"k": "v"} }).to_string();
    let headers = format!("{ONE}content-length: {}\r\n", body.len());
    service.ask(request("POST", "/evaluate", &headers) + &body)
}

fn id_of(answer: &cofferdam_test_server::client::Answer) -> String {
    assert_eq!(answer.status, 202, "{answer:?}");
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    body["eval_id"].as_str().unwrap().to_owned()
}

fn get(service: &Service, target: &str) -> Value {
    let answer = service.ask(request("GET", target, ONE));
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// Follows an evaluation to its result; returns all events.
fn follow(service: &Service, id: &str, headers: &str) -> String {
    let mut client = service.connect();
    client.send(format!("GET /evaluate/{id}/events HTTP/1.0\r\n{ONE}{headers}\r\n"));
    assert_eq!(client.head().status, 200);
    client.rest_text()
}

const SOLVES: &str = "open('a.txt', 'w').write('done')";

#[test]
fn an_evaluation_is_followed_to_its_result_patch_and_tests_by_its_token_alone() {
    let directory = TempDir::new().unwrap();
    let url = serve_task(directory.path());
    let service = start(directory.path());
    let id = id_of(&submit(&service, &url, SOLVES));
    let events = follow(&service, &id, "");
    assert!(events.contains("data: {\"step\":\"running_agent\"}"), "{events}");
    let last = events.split_terminator("\n\n").last().unwrap();
    assert!(last.starts_with("event: result\nid: "), "{last}");
    assert!(follow(&service, &id, "last-event-id: 1\r\n").starts_with("event: step\nid: 2\n"));
    let result = get(&service, &format!("/evaluate/{id}"));
    assert_eq!((&result["verdict"], &result["passed"]), (&json!("resolved"), &json!(true)));
    let ask = |target: &str| service.ask(request("GET", &format!("/evaluate/{id}{target}"), ONE));
    assert_eq!(Value::from(ask("/patch").body), result["agent_patch"]);
    assert_eq!(ask("/junit.xml").body.matches("<testcase ").count(), 2);
    let listed = get(&service, "/evaluations?label=k:v&verdict=resolved");
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["eval_id"]), (1, &json!(id)));
    let ended = service.ask(request("DELETE", &format!("/evaluate/{id}"), ONE));
    assert_eq!(ended.status, 200, "{ended:?}");
    for target in ["", "/patch", "/junit.xml", "/events"] {
        let other = service.ask(request("GET", &format!("/evaluate/{id}{target}"), TWO));
        assert_eq!(other.status, 404, "{target}");
    }
    assert_eq!(service.ask(request("GET", "/evaluations", TWO)).body, "[]");
    let public: Value = serde_json::from_str(&service.get("/status").body).unwrap();
    assert_eq!((public["passed"].as_u64(), public.as_object().unwrap().len()), (Some(1), 9));
}

#[test]
fn what_has_no_slot_is_refused_and_a_killed_service_leaves_an_infra_error() {
    let directory = TempDir::new().unwrap();
    let url = serve_task(directory.path());
    let mut service = start(directory.path());
    let cancelled = id_of(&submit(&service, &url, "import time; time.sleep(600)"));
    let refused = submit(&service, &url, SOLVES);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    let answer = service.ask(request("DELETE", &format!("/evaluate/{cancelled}"), ONE));
    assert_eq!(answer.status, 202, "{answer:?}");
    follow(&service, &cancelled, "");
    assert_eq!(get(&service, &format!("/evaluate/{cancelled}"))["verdict"], "cancelled");
    let killed = id_of(&submit(&service, &url, "import time; time.sleep(600)"));
    service.kill();
    let service = start(directory.path());
    let result = get(&service, &format!("/evaluate/{killed}"));
    assert_eq!(result["verdict"], "infra_error", "{result}");
    assert_eq!(result["failure"]["code"], "evaluation.interrupted", "{result}");
    assert_eq!(get(&service, "/evaluations").as_array().unwrap().len(), 2);
}
