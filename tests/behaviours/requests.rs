//! What is asked for: tokens, fields, languages, capacity.

use cofferdam_test_server::client::request;
use serde_json::{Value, json};

use crate::scene::{EvaluationScene, WANTS_DONE, shell_agent};

/// MAX_AGENT_CODE_BYTES.
const CODE_BYTES: usize = 5_242_880;

#[track_caller]
fn assert_refused(scene: &EvaluationScene, body: &str, field: &str) {
    let answer = scene.ask("POST", "/evaluate", body);
    assert_eq!(answer.status, 400, "{body:.200}: {answer:?}");
    let error: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(error["code"], "evaluate.invalid_request", "{error}");
    assert!(error["message"].as_str().unwrap().contains(field), "{field}: {error}");
}

#[test]
fn b4_a_request_has_an_id_at_once() {
    let scene = EvaluationScene::new();
    let answer = scene.post(&shell_agent(&scene.serve(&WANTS_DONE), ":"));
    assert_eq!(answer.status, 202, "{answer:?}");
    let begun: Value = serde_json::from_str(&answer.body).unwrap();
    let id = begun["eval_id"].as_str().unwrap();
    assert_eq!(begun.as_object().unwrap().len(), 1, "{begun}");
    assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
    assert_eq!(answer.header("location"), Some(format!("/evaluate/{id}").as_str()));
    assert_eq!(scene.result(id)["eval_id"], id);
    scene.end(id);
}

#[test]
fn b5_without_its_token_no_body_is_looked_at() {
    let scene = EvaluationScene::with(&[("AUTH_TOKEN", "the-only-token-of-this-service")]);
    let large = "x".repeat(10 << 20);
    for (headers, body) in [
        ("", "{"),
        ("authorization: Bearer another-token-than-that-one\r\n", "{}"),
        ("authorization: Bearer \r\n", large.as_str()),
    ] {
        let head =
            request("POST", "/evaluate", &format!("{headers}content-length: {}\r\n", body.len()));
        let mut client = scene.service.connect();
        client.send(head);
        // The answer may come before all of the body is sent.
        client.try_send(body);
        let answer = client.answer();
        assert_eq!(answer.status, 401, "{answer:?}");
    }
}

#[test]
fn b6_a_service_without_a_token_is_open_and_warns() {
    let scene = EvaluationScene::with(&[("AUTH_TOKEN", "")]);
    assert_eq!(scene.agent(&scene.serve(&WANTS_DONE), "touch done")["verdict"], "resolved");
    scene.service.log.wait_for("every client may use the service");
}

#[test]
fn b7_a_wrong_field_is_named() {
    let scene = EvaluationScene::new();
    let url = scene.url("task.tar");
    assert_refused(&scene, "{", "");
    assert_refused(&scene, "[]", "");
    let right = json!({"task_url": url, "agent_code": ":"});
    for (field, value) in [
        ("agent_code", json!("")),
        ("agent_code", json!(7)),
        ("agent_code", Value::Null),
        ("task_url", json!("")),
        ("task_url", Value::Null),
        ("task_url", json!(["x"])),
        ("timeout_secs", json!(0)),
        ("timeout_secs", json!(-1)),
        ("timeout_secs", json!("9")),
        ("timeout_secs", json!(601)),
        ("timeout_secs", json!(1.5)),
        ("task_sha256", json!("ab")),
        ("agent_env", json!({"LD_PRELOAD": "x"})),
        ("agent_env", json!({"A-B": "x"})),
        ("agent_env", json!({"PATH": "x"})),
        ("agent_env", json!([])),
        ("agent_hosts", json!(["example.com:443"])),
        ("rootfs", json!("../x")),
        ("on_agent_limit", json!("go on")),
        ("fresh", json!("yes")),
        ("labels", json!({"a": 1})),
        ("patch", json!("diff --git a/a b/a\n")),
        ("unknown", json!(1)),
    ] {
        let mut body = right.clone();
        let object = body.as_object_mut().unwrap();
        if value.is_null() {
            object.remove(field);
        } else {
            object.insert(field.to_owned(), value);
        }
        assert_refused(&scene, &body.to_string(), field);
    }
}

#[test]
fn b8_an_agent_has_at_most_its_bytes_however_they_are_written() {
    let scene = EvaluationScene::new();
    let url = scene.serve(&WANTS_DONE);
    let body = |count: usize| {
        let code = format!(":\\n#{}", "\\u0061".repeat(count - 3));
        format!(r#"{{"task_url":"{url}","agent_code":"{code}","agent_language":"sh"}}"#)
    };
    let answer = scene.ask("POST", "/evaluate", &body(CODE_BYTES));
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_refused(&scene, &body(CODE_BYTES + 1), "agent_code");
    let over = 6 * CODE_BYTES + (64 << 10) + 1;
    let mut client = scene.service.connect();
    client.send(request("POST", "/evaluate", &format!("content-length: {over}\r\n")));
    assert_eq!(client.answer().status, 413);
}

#[test]
fn b9_a_url_is_http_or_https_short_and_leads_to_no_guarded_address() {
    let scene = EvaluationScene::new();
    let url = |length: usize| {
        let start = scene.url("none?");
        format!("{start}{}", "a".repeat(length - start.len()))
    };
    assert_eq!(scene.agent(&url(2048), ":")["failure"]["code"], "task.download_failed");
    for refused in [url(2049), "ftp://example.com/a".to_owned(), "file:///etc/passwd".to_owned()] {
        assert_refused(&scene, &shell_agent(&refused, ":").to_string(), "task_url");
    }
    assert_refused(&scene, &shell_agent("http://a:b@example.com/", ":").to_string(), "task_url");
    for guarded in ["http://169.254.169.254/latest", "http://[::1]:1/", "http://2886729729/"] {
        let result = scene.agent(guarded, ":");
        assert_eq!(result["failure"]["code"], "task.url_denied", "{guarded}: {result:#}");
        assert_eq!((&result["verdict"], &result["passed"]), (&json!("infra_error"), &Value::Null));
    }
}

#[test]
fn b10_an_unknown_language_is_refused_with_the_known_ones() {
    let scene = EvaluationScene::new();
    let body = json!({"task_url": scene.url("a"), "agent_code": "x", "agent_language": "cobol"});
    let answer = scene.post(&body);
    assert_eq!(answer.status, 400, "{answer:?}");
    let error: Value = serde_json::from_str(&answer.body).unwrap();
    let known = error["details"]["known"].as_array().unwrap();
    assert!(known.contains(&json!("python")) && known.contains(&json!("rust")), "{error}");
}

#[test]
fn b11_a_language_has_its_names_in_any_case() {
    let scene = EvaluationScene::new();
    let url = scene.serve(&WANTS_DONE);
    for (language, code) in [
        ("PY", "open('done', 'w')"),
        ("Node", "require('fs').writeFileSync('done', '')"),
        ("sh", "touch done"),
        ("SHELL", "touch done"),
    ] {
        let body = json!({"task_url": url, "agent_code": code, "agent_language": language});
        let result = scene.evaluate(&body);
        assert_eq!(result["verdict"], "resolved", "{language}: {result:#}");
    }
}

#[test]
fn b11_typescript_is_refused_where_nothing_runs_it() {
    let scene = EvaluationScene::new();
    let url = scene.serve(&WANTS_DONE);
    let code =
        "import * as fs from 'fs';\nconst name: string = 'done';\nfs.writeFileSync(name, '');\n";
    let body = json!({"task_url": url, "agent_code": code, "agent_language": "ts"});
    let answer = scene.post(&body);
    if answer.status == 202 {
        let begun: Value = serde_json::from_str(&answer.body).unwrap();
        let result = scene.end(begun["eval_id"].as_str().unwrap());
        assert_eq!(result["verdict"], "resolved", "{result:#}");
    } else {
        assert_eq!(answer.status, 503, "{answer:?}");
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(error["code"], "evaluate.language_unavailable", "{error}");
    }
    // What the agent needs may bring tsx.
    let tsx = "mkdir -p /agent/venv/bin && printf '#!/bin/sh\\nsed -n s/^const/touch/p $1 >/dev/null && touch done\\n' \
               >/agent/venv/bin/tsx && chmod 755 /agent/venv/bin/tsx";
    let mut body = body;
    body["agent_install"] = json!([tsx]);
    let result = scene.evaluate(&body);
    assert_eq!(result["verdict"], "resolved", "{result:#}");
}

#[test]
fn b12_more_than_its_slots_are_refused_and_slots_come_back() {
    let scene = EvaluationScene::with(&[("MAX_CONCURRENT_EVALS", "2")]);
    let url = scene.serve(&WANTS_DONE);
    // Failures and cancels give their slots back.
    for _ in 0..3 {
        assert_eq!(scene.agent(&scene.url("none"), ":")["verdict"], "infra_error");
    }
    let sleeping = shell_agent(&url, "sleep 600");
    for _ in 0..2 {
        let ids = [scene.begin(&sleeping), scene.begin(&sleeping)];
        let answer = scene.post(&sleeping);
        assert_eq!(answer.status, 503, "{answer:?}");
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(error["code"], "evaluate.at_capacity", "{error}");
        let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(after > 0);
        for id in ids {
            assert_eq!(scene.ask("DELETE", &format!("/evaluate/{id}"), "").status, 202);
            assert_eq!(scene.end(&id)["verdict"], "cancelled");
        }
    }
    let status: Value = serde_json::from_str(&scene.service.get("/status").body).unwrap();
    assert_eq!(status["available_slots"], 2, "{status}");
}
