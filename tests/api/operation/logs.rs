//! What the log says about requests, in both formats, and what it never contains.

use std::time::Duration;

use cofferdam_test_server::client::{Answer, post, request, solution};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use serde_json::Value;

/// The lines of the log as JSON. Every line is an object.
fn lines(service: &Service) -> Vec<Value> {
    let log = service.log.text();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    log.lines().map(parse).filter(Value::is_object).collect()
}

/// The lines with this message, as soon as there are `count`.
#[track_caller]
fn lines_of(service: &Service, message: &str, count: usize) -> Vec<Value> {
    let found = || -> Vec<Value> {
        lines(service).into_iter().filter(|line| line["message"] == message).collect()
    };
    wait_until(message, Duration::from_secs(10), || found().len() >= count);
    let found = found();
    assert_eq!(found.len(), count, "{found:?}");
    found
}

fn json() -> Setup {
    Setup::shell().env("LOG_FORMAT", "json")
}

fn id_of(answer: &Answer) -> String {
    answer.header("x-request-id").unwrap_or_else(|| panic!("{}", answer.head)).to_owned()
}

#[test]
fn the_end_of_a_run_is_logged_as_one_line_with_its_measurements() {
    let service = json().env("STANDBY_MAX", "0").start();
    let named = post("x-request-id: battle-7_a.b\r\n", solution("exit 3").to_string());
    assert_eq!(id_of(&service.ask(named)), "battle-7_a.b");
    let line = &lines_of(&service, "run ended", 1)[0];
    assert_eq!(line["level"], "INFO", "{line}");
    assert!(line["time"].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')));
    for (key, value) in [
        ("request_id", Value::from("battle-7_a.b")),
        ("slug", "python".into()),
        ("outcome", "exited".into()),
        ("exit_code", 3.into()),
        ("standby", false.into()),
    ] {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    for key in ["queue_ms", "prepare_ms", "run_ms", "cleanup_ms"] {
        assert!(
            line[key].as_f64().is_some_and(|ms| (0.0..60_000.0).contains(&ms)),
            "{key}: {line}"
        );
    }
    assert!(line["memory_peak_bytes"].as_u64().is_some(), "{line}");
}

#[test]
fn the_text_format_has_the_same_fields() {
    let service = Setup::shell().start();
    let id = id_of(&service.run("exit 3"));
    let find =
        || service.log.text().lines().find(|line| line.contains("run ended")).map(str::to_owned);
    wait_until("the line", Duration::from_secs(10), || find().is_some());
    let line = find().unwrap();
    let start =
        format!("] run ended request_id={id} slug=python outcome=exited exit_code=3 queue_ms=");
    assert!(line.starts_with("[INFO ") && line.contains(&start), "{line}");
    for key in ["prepare_ms=", "run_ms=", "cleanup_ms=", "memory_peak_bytes=", "standby="] {
        assert!(line.contains(&format!(" {key}")), "{key}: {line}");
    }
}

#[test]
fn a_run_in_a_prepared_sandbox_is_logged_as_such() {
    let service = json().env("STANDBY_MAX", "2").start();
    wait_until("a run in a prepared sandbox", Duration::from_secs(20), || {
        service.run("true");
        lines(&service).iter().any(|line| line["standby"] == true)
    });
}

#[test]
fn timed_out_and_cancelled_runs_are_logged() {
    let service = json().start();
    let late = cofferdam_test_server::client::solution_within("100ms", "sleep 9");
    let id = id_of(&service.post(&late));
    let line = &lines_of(&service, "run ended", 1)[0];
    assert_eq!(
        (&line["outcome"], &line["exit_code"]),
        (&"timed_out".into(), &Value::Null),
        "{line}"
    );
    assert_eq!(line["request_id"], *id);
    service.live("sleep 30").abort();
    let cancelled = &lines_of(&service, "run ended", 2)[1];
    assert_eq!(cancelled["outcome"], "cancelled", "{cancelled}");
}

#[test]
fn a_refused_request_is_logged_with_the_reason() {
    let service = json().start();
    for (bytes, status, reason, path) in [
        (request("GET", "/secret?token=s3cret", "").into_bytes(), 404, "not found", "/secret"),
        (request("PUT", "/run", "").into_bytes(), 405, "method not allowed", "/run"),
        (post("origin: https://evil.example\r\n", "{}"), 403, "cross-origin request", "/run"),
        (post("", r#"{"lang_slug":"x","solution_text":""}"#), 400, "unsupported lang_slug", "/run"),
        (post("", r#"{"te11tale":1,"te11tale":2}"#), 400, "bad JSON: line 1 column 27", "/run"),
        (post("content-length: 1\r\n", "x"), 400, "more than one content-length", "/run"),
    ] {
        let before = lines(&service).len();
        let answer = service.ask(bytes);
        assert_eq!(answer.status, status, "{answer:?}");
        wait_until(reason, Duration::from_secs(10), || lines(&service).len() > before);
        let line = lines(&service).pop().unwrap();
        assert_eq!(line["message"], "refused", "{line}");
        assert_eq!(line["status"], status, "{line}");
        assert_eq!((&line["reason"], &line["path"]), (&reason.into(), &path.into()), "{line}");
        assert_eq!(line["request_id"], *id_of(&answer), "{line}");
    }
    let log = service.log.text();
    assert!(!log.contains("s3cret") && !log.contains("te11tale"), "{log}");
}

/// The HTTP parser writes these answers, so they have no request id.
#[test]
fn bytes_that_are_not_a_request_are_logged() {
    let service = json().start();
    for (bytes, status) in [
        (request("GET", "/health", "x: \x1b[2K\r\n"), 400),
        (request("G(T", "/s3cret", ""), 400),
        (request("GET", "/health", &format!("x: {}\r\n", "s3cret".repeat(4000))), 431),
    ] {
        let before = lines(&service).len();
        let answer = service.ask(bytes);
        assert_eq!((answer.status, answer.header("x-request-id")), (status, None), "{answer:?}");
        wait_until("a line", Duration::from_secs(10), || lines(&service).len() > before);
        let line = lines(&service).pop().unwrap();
        assert_eq!(line["message"], "refused: no request", "{line}");
        assert!(line["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{line}");
    }
    assert!(!service.log.text().contains("s3cret"));
}

#[test]
fn lines_about_refused_requests_are_rate_limited() {
    let service = json().start();
    let mut client = service.connect();
    let asked = 1000;
    for _ in 0..10 {
        client.send(request("GET", "/x", "").repeat(asked / 10));
        (0..asked / 10).for_each(|_| assert_eq!(client.answer().status, 404));
    }
    std::thread::sleep(Duration::from_millis(1100));
    client.ask(request("GET", "/x", ""));
    let count = |line: &Value| line["count"].as_u64().unwrap_or(0);
    let left_out = || -> u64 { lines(&service).iter().map(count).sum() };
    let told = || lines(&service).iter().filter(|line| line["message"] == "refused").count();
    wait_until("the count of dropped lines", Duration::from_secs(10), || {
        left_out() + told() as u64 == asked as u64 + 1
    });
    // At most a hundred lines a second are written.
    assert!(left_out() > 0, "{} lines", told());
}

#[test]
fn every_answer_has_a_request_id_taken_from_the_client_if_valid() {
    let service = json().env("RUN_CONCURRENCY", "1").start();
    let good = ["a", "7c9e6679-7425-40de-944b-e07fc1f90ae7", &"x".repeat(128)];
    for name in good {
        let named = request("GET", "/health", &format!("X-Request-ID: {name}\r\n"));
        assert_eq!(id_of(&service.ask(named)), name);
    }
    let bad = ["", "a b", "a;b", "\"a\"", "a\tb", "ä", "a\u{9b}31m", &"x".repeat(129)];
    let twice = "x-request-id: first\r\nx-request-id: second\r\n".to_owned();
    let headers = bad.iter().map(|name| format!("x-request-id: {name}\r\n")).chain([twice]);
    let mut made: Vec<String> = headers
        .map(|headers| {
            let answer = service.ask(request("GET", "/health", &headers));
            assert_eq!(answer.head.to_lowercase().matches("x-request-id").count(), 1, "{answer:?}");
            id_of(&answer)
        })
        .collect();
    made.sort();
    let count = made.len();
    made.dedup();
    assert_eq!(made.len(), count, "request ids used twice: {made:?}");
    let is_ours = |name: &String| {
        name.len() < 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    assert!(made.iter().all(is_ours), "{made:?}");

    // Every kind of answer has one.
    let mut live = service.live("sleep 30");
    let head = live.head();
    assert_eq!(head.status, 200);
    assert!(head.header("content-type").is_some_and(|mime| mime == "text/event-stream"));
    id_of(&head);
    for (answer, status) in [
        (service.run("true"), 429),
        (service.get("/nowhere"), 404),
        (service.ask(post("content-encoding: gzip\r\n", "x")), 415),
        (service.ask(post("content-length: 1\r\n", "x")), 400),
        (service.get("/status"), 200),
    ] {
        assert_eq!(answer.status, status, "{answer:?}");
        id_of(&answer);
    }
    live.abort();
}

#[test]
fn no_tenant_text_or_secret_is_logged_and_no_input_forges_a_line() {
    let tenant = "te11tale";
    let script = format!("echo {tenant}; echo {tenant} >&2; echo \"$OPERATORS\"; exit 1");
    for (format, debug) in [("text", false), ("text", true), ("json", false), ("json", true)] {
        let mut setup = Setup::shell()
            .env("LOG_FORMAT", format)
            .env("RUN_ENV_ALLOW", "OPERATORS")
            .env("OPERATORS", "0perators");
        if debug {
            setup = setup.env("DEBUG", "1");
        }
        let mut service = setup.start();
        let headers = "authorization: Bearer s3cret\r\ncookie: s3cret\r\nx-api-key: s3cret\r\n\
                       x-auth-token: s3cret\r\nreferer: http://x/?code=s3cret\r\nx-trace: a\x1b[2Ktr4ce\r\n";
        // ESC is not allowed in a header, and hyper refuses it before there is a request.
        let headers = headers.replace('\x1b', "\u{9b}");
        assert_eq!(service.ask(post(&headers, solution(&script).to_string())).status, 200);
        service.ask(request("GET", "/health?access=s3cret", &headers)).assert_text(200, "ok\n");
        service.ask(request("GET", "/%0a[INFO?s3cret", ""));
        wait_until("the refusal", Duration::from_secs(10), || {
            service.log.text().contains("refused")
        });
        service.stop();
        let log = service.log.text();
        for secret in ["s3cret", tenant, "0perators"] {
            assert!(!log.contains(secret), "{format}, {debug}: {secret}: {log}");
        }
        assert_eq!(log.contains("tr4ce"), debug, "{format}: {log}");
        for line in log.lines() {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            match format {
                "text" => assert!(line.starts_with('['), "{line:?}"),
                _ => assert!(serde_json::from_str::<Value>(line).unwrap().is_object(), "{line:?}"),
            }
        }
    }
}

#[test]
fn an_unknown_log_format_prevents_the_start_and_names_the_variable() {
    let (code, said) = Setup::shell().env("LOG_FORMAT", "logfmt").refused();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("LOG_FORMAT: want text or json, got \"logfmt\""), "{said}");
}

#[test]
fn log_lines_of_a_run_have_its_request_id() {
    // The run fails because the Makefile is removed while the service runs.
    let service = json().env("STANDBY_MAX", "0").start();
    assert_eq!(service.run("true").status, 200);
    let makefile = service.workspace().path().join("Makefile");
    std::fs::remove_file(makefile).unwrap();
    let answer = service.run("true");
    assert_eq!(answer.status, 503, "{answer:?}");
    let line = &lines_of(&service, "refused", 1)[0];
    assert_eq!(line["level"], "WARN", "{line}");
    assert_eq!(line["request_id"], *id_of(&answer), "{line}");
    assert!(line["reason"].as_str().unwrap().contains("no Makefile"), "{line}");
}
