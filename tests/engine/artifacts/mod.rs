//! `/v1/artifacts` and `/v1/artifact-versions`.

mod cli;
mod kills;

use std::fs;
use std::thread;

use cofferdam_core::values::digest::sha256_of;
use cofferdam_test_server::client::Client;
use cofferdam_test_server::service::Service;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::exchange::{Reply, TOKENS, ask, engine_server, reply};

fn serve() -> (Service, TempDir) {
    let directory = tempdir().unwrap();
    (engine_server(&directory.path().join("engine")).start(), directory)
}

fn save(service: &Service, target: &str, bytes: &[u8]) -> Value {
    let reply = ask(service, "POST", &format!("/v1/artifacts/{target}"), "", bytes);
    assert_eq!(reply.status, 201, "{}", reply.json());
    reply.json()
}

fn get(service: &Service, target: &str) -> Reply {
    ask(service, "GET", target, "", b"")
}

#[test]
fn a_version_is_saved_and_sent_with_its_type_and_its_digest() {
    let (service, _directory) = serve();
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let headers = "content-type: image/png\r\n";
    let saved = ask(&service, "POST", "/v1/artifacts/a.png", headers, &bytes);
    let sha256 = sha256_of(&bytes);
    let expected = json!({"name": "a.png", "version": 0, "ref": "artifact://a.png@0",
                          "sha256": sha256, "size_bytes": 800_000});
    assert_eq!((saved.status, saved.json()), (201, expected));
    assert_eq!(save(&service, "a.png", b"one")["version"], 1);
    for (target, version, body, media_type) in [
        ("/v1/artifacts/a.png", "1", &b"one"[..], "application/octet-stream"),
        ("/v1/artifacts/a.png?version=1", "1", b"one", "application/octet-stream"),
        ("/v1/artifacts/a.png?version=0", "0", &bytes, "image/png"),
    ] {
        let sent = get(&service, target);
        assert_eq!(sent.status, 200, "{target}");
        assert!(sent.body == body, "{target}");
        assert_eq!(sent.header("x-artifact-version"), Some(version));
        assert_eq!(sent.header("content-type"), Some(media_type));
        let etag = format!("\"{}\"", sha256_of(body));
        assert_eq!(sent.header("etag"), Some(etag.as_str()));
        assert_eq!(sent.header("x-content-type-options"), Some("nosniff"));
        let known = format!("if-none-match: {etag}\r\n");
        let unchanged = ask(&service, "GET", target, &known, b"");
        assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
        assert_eq!(unchanged.header("x-artifact-version"), Some(version));
        let head = ask(&service, "HEAD", target, "", b"");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), Some(body.len().to_string().as_str()));
    }
    let part = ask(&service, "GET", "/v1/artifacts/a.png?version=0", "range: bytes=4-7\r\n", b"");
    assert_eq!((part.status, part.body.as_slice()), (206, &1_u32.to_le_bytes()[..]));
    assert_eq!(part.header("content-range"), Some("bytes 4-7/800000"));
    // What the store keeps behind the bytes is not part of them.
    let part =
        ask(&service, "GET", "/v1/artifacts/a.png?version=0", "range: bytes=799999-\r\n", b"");
    assert_eq!((part.status, part.body.len()), (206, 1));
    let none =
        ask(&service, "GET", "/v1/artifacts/a.png?version=0", "range: bytes=800000-\r\n", b"");
    assert_eq!((none.status, none.header("content-range")), (416, Some("bytes */800000")));
}

#[test]
fn a_body_of_unknown_length_and_an_empty_one_are_saved() {
    let (service, _directory) = serve();
    let mut client = Client::connect(service.address);
    client.send("POST /v1/artifacts/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let saved = reply(&client.rest(), "POST").unwrap();
    assert_eq!((saved.status, saved.json()["sha256"].clone()), (201, json!(sha256_of(b"abcde"))));
    assert_eq!(save(&service, "a", b"")["size_bytes"], 0);
    assert_eq!(get(&service, "/v1/artifacts/a").body, b"");
    assert_eq!(get(&service, "/v1/artifacts/a?version=0").body, b"abcde");
}

#[test]
fn a_deletion_is_204_and_no_version_comes_back_after_it_or_a_restart() {
    let directory = tempdir().unwrap();
    let store = directory.path().join("engine");
    let mut next = 0;
    for _ in 0..3 {
        let mut service = engine_server(&store).start();
        for _ in 0..2 {
            assert_eq!(save(&service, "a", b"x")["version"], next);
            next += 1;
        }
        for _ in 0..2 {
            let deleted = ask(&service, "DELETE", "/v1/artifacts/a", "", b"");
            assert_eq!((deleted.status, deleted.body.len()), (204, 0));
        }
        get(&service, "/v1/artifacts/a").assert_error(404, "artifact.not_found");
        get(&service, "/v1/artifacts/a?version=0").assert_error(404, "artifact.not_found");
        assert_eq!(get(&service, "/v1/artifacts").json()["artifacts"], json!([]));
        assert_eq!(save(&service, "a", b"x")["version"], next);
        next += 1;
        get(&service, "/v1/artifacts/a?version=0").assert_error(404, "artifact.version_not_found");
        service.kill();
    }
    let service = engine_server(&store).start();
    assert_eq!(get(&service, "/v1/artifact-versions/a").json(), json!({"versions": [8]}));
    assert_eq!(ask(&service, "DELETE", "/v1/artifacts/never", "", b"").status, 204);
}

#[test]
fn artifacts_are_listed_by_name_page_by_page() {
    let (service, _directory) = serve();
    assert_eq!(
        get(&service, "/v1/artifacts").json(),
        json!({"artifacts": [], "next_cursor": null})
    );
    for name in ["b", "a%2Fx", "a/x", "%C3%A9", "c"] {
        save(&service, name, b"x");
    }
    ask(&service, "DELETE", "/v1/artifacts/c", "", b"");
    let all = json!([{"name": "a/x", "latest": 1, "versions": 2}, {"name": "b", "latest": 0, "versions": 1},
                     {"name": "é", "latest": 0, "versions": 1}]);
    assert_eq!(
        get(&service, "/v1/artifacts").json(),
        json!({"artifacts": all, "next_cursor": null})
    );
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&service, &format!("/v1/artifacts?limit=2{cursor}")).json();
        found.extend(page["artifacts"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(Value::Array(found), all);
    assert_eq!(get(&service, "/v1/artifact-versions/a%2Fx").json(), json!({"versions": [0, 1]}));
    get(&service, "/v1/artifact-versions/none").assert_error(404, "artifact.not_found");
}

#[test]
fn wrong_names_queries_and_types_are_refused_with_nothing_saved() {
    let (service, _directory) = serve();
    let long = "a".repeat(1025);
    for name in ["..", "a/../b", "%2e%2e%2Fetc", "x@1", "x%401", "a@b@007", "%ff", "%zz", &long] {
        let target = format!("/v1/artifacts/{name}");
        let error = ask(&service, "POST", &target, "", b"x");
        let error = error.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], "name", "{name}");
        get(&service, &target).assert_error(422, "validation.invalid_request");
        let target = format!("/v1/artifact-versions/{name}");
        get(&service, &target).assert_error(422, "validation.invalid_request");
    }
    let long_part = format!("session={}", "a".repeat(257));
    for (query, path) in [
        ("owner=a", "owner"),
        ("app=a&app=b", "app"),
        ("version=0", "version"),
        (&long_part, "session"),
    ] {
        let saved = ask(&service, "POST", &format!("/v1/artifacts/a?{query}"), "", b"x");
        let error = saved.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path, "{query}");
    }
    for version in ["", "-1", "+1", "x", "1.0", "99999999999999999999999"] {
        let target = format!("/v1/artifacts/a?version={version}");
        get(&service, &target).assert_error(422, "validation.invalid_request");
    }
    for query in ["limit=0", "limit=1001", "cursor=!", "cursor=", "name=a"] {
        let target = format!("/v1/artifacts?{query}");
        get(&service, &target).assert_error(422, "validation.invalid_request");
    }
    let two = "content-type: a/b\r\ncontent-type: a/b\r\n";
    let error = ask(&service, "POST", "/v1/artifacts/a", two, b"x");
    error.assert_error(422, "validation.invalid_request");
    assert_eq!(ask(&service, "PUT", "/v1/artifacts/a", "", b"x").status, 405);
    assert_eq!(get(&service, "/v1/artifacts").json()["artifacts"], json!([]));
}

#[test]
fn every_other_name_is_kept_as_it_is() {
    let (service, directory) = serve();
    let names =
        ["a b", "/etc/passwd", "a@", "a@v1", "CON", "key.json", "%", "a\u{0}b", "\n", "😀", "."];
    for name in names {
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let saved = save(&service, &escaped, name.as_bytes());
        assert_eq!(saved["name"], name);
        assert_eq!(get(&service, &format!("/v1/artifacts/{escaped}")).body, name.as_bytes());
    }
    let listed = get(&service, "/v1/artifacts").json();
    let mut listed: Vec<&str> = listed["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|artifact| artifact["name"].as_str().unwrap())
        .collect();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    listed.clear();
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        1,
        "a file is outside of the store"
    );
}

#[test]
fn a_token_sees_only_its_own_artifacts_and_sessions_are_apart() {
    let directory = tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, TOKENS.map(|(name, token)| format!("{name} {token}\n")).concat()).unwrap();
    let setup = engine_server(&directory.path().join("engine"));
    let service = setup.env("AUTH_TOKENS_FILE", &tokens).start();
    let [one, two] = TOKENS.map(|(_, token)| format!("authorization: Bearer {token}\r\n"));
    let session = "/v1/artifacts/a?app=p&user=u&session=s";
    for (headers, target, version) in [
        (&one, "/v1/artifacts/a", 0),
        (&one, "/v1/artifacts/a", 1),
        (&two, "/v1/artifacts/a", 0),
        (&one, session, 0),
        (&one, "/v1/artifacts/a?session=s", 0),
        (&one, "/v1/artifacts/a?app=&user=", 2),
    ] {
        let saved = ask(&service, "POST", target, headers, b"x");
        assert_eq!(
            (saved.status, saved.json()["version"].clone()),
            (201, json!(version)),
            "{target}"
        );
    }
    ask(&service, "GET", session, &two, b"").assert_error(404, "artifact.not_found");
    assert_eq!(ask(&service, "DELETE", session, &two, b"").status, 204);
    assert_eq!(ask(&service, "GET", session, &one, b"").status, 200);
    let listed = ask(&service, "GET", "/v1/artifacts?session=s", &two, b"").json();
    assert_eq!(listed["artifacts"], json!([]));
    ask(&service, "GET", "/v1/artifacts", "", b"").assert_error(401, "auth.required");
}

#[test]
fn what_is_too_large_is_refused_before_it_is_sent_and_when_it_arrives() {
    let directory = tempdir().unwrap();
    let setup = engine_server(directory.path()).env("ENGINE_ARTIFACT_MAX", "1MiB");
    let service = setup.env("ENGINE_STORE_MAX", "3MiB").start();
    // Nothing of the body is sent: a service that waits for it does not answer.
    let mut client = Client::connect(service.address);
    client.send("POST /v1/artifacts/a HTTP/1.1\r\nhost: x\r\ncontent-length: 1048577\r\n\r\n");
    assert_eq!(client.head().status, 413);
    let mut client = Client::connect(service.address);
    client.send("POST /v1/artifacts/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..17 {
        client.try_send(format!("10000\r\n{}\r\n", "x".repeat(0x10000)));
    }
    let refused = reply(&client.rest(), "POST").unwrap();
    refused.assert_error(413, "validation.too_large");
    save(&service, "a", &[0; 1 << 20]);
    save(&service, "a", &[0; 1 << 20]);
    let full = ask(&service, "POST", "/v1/artifacts/b", "", &[0; 1 << 20]);
    full.assert_error(507, "store.full");
    let waiting = fs::read_dir(directory.path().join("artifacts-incoming")).unwrap();
    assert_eq!(waiting.count(), 0, "an upload that was refused is left");
    ask(&service, "DELETE", "/v1/artifacts/a", "", b"");
    assert_eq!(save(&service, "b", &[0; 1 << 20])["version"], 0);
}

#[test]
fn the_same_request_with_the_same_key_is_saved_once() {
    let (service, _directory) = serve();
    let keyed =
        |target: &str, body: &[u8]| ask(&service, "POST", target, "idempotency-key: k\r\n", body);
    let first = keyed("/v1/artifacts/a", b"x");
    let again = keyed("/v1/artifacts/a", b"x");
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    keyed("/v1/artifacts/a", b"y").assert_error(409, "request.conflict");
    keyed("/v1/artifacts/b", b"x").assert_error(409, "request.conflict");
    assert_eq!(get(&service, "/v1/artifact-versions/a").json(), json!({"versions": [0]}));
}

#[test]
fn a_save_needs_no_memory_for_the_whole_of_it() {
    const BYTES: usize = 96 << 20;
    let (service, _directory) = serve();
    save(&service, "warm", &vec![7; 1 << 20]);
    let peak_kib = || {
        let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let before = peak_kib();
    thread::scope(|scope| {
        for name in ["a", "b"] {
            let service = &service;
            scope.spawn(move || save(service, name, &vec![7; BYTES]));
        }
    });
    let sent = get(&service, "/v1/artifacts/a");
    assert!(sent.body.len() == BYTES && sent.body.iter().all(|byte| *byte == 7));
    let grown = peak_kib() - before;
    assert!(grown < 16 << 10, "{grown} KiB more for saves of {} KiB", BYTES >> 10);
}

#[test]
fn an_upload_that_breaks_off_leaves_no_version_and_no_file() {
    let (service, directory) = serve();
    let mut client = Client::connect(service.address);
    client.send("POST /v1/artifacts/a HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf");
    let incoming = directory.path().join("engine/artifacts-incoming");
    let uploads = || fs::read_dir(&incoming).unwrap().count();
    let patience = std::time::Duration::from_secs(30);
    cofferdam_test_server::service::wait_until("the upload", patience, || uploads() == 1);
    client.abort();
    cofferdam_test_server::service::wait_until("its end", patience, || uploads() == 0);
    get(&service, "/v1/artifacts/a").assert_error(404, "artifact.not_found");
    assert_eq!(save(&service, "a", b"x")["version"], 0);
}

#[test]
fn one_service_at_a_time_has_the_directory() {
    let directory = tempdir().unwrap();
    let service = engine_server(directory.path()).start();
    let (code, log) = engine_server(directory.path()).refused();
    assert_eq!(code, Some(2), "{log}");
    let owner = format!("is the store of process {}", service.pid());
    assert!(log.contains("--engine-dir") && log.contains(&owner), "{log}");
}
