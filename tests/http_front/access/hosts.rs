//! The Host header against DNS rebinding: for a browser, a page whose name was rebound to this
//! service has its origin and may read its answers.

use std::sync::atomic::Ordering;

use cofferdam::config::{MetricsPlace, Tokens};
use cofferdam::http::HttpSettings;

use crate::jobs::scripted::ScriptedJobs;
use crate::jobs::{JOB, assert_error, get, submission};
use crate::support::{Client, HEALTH, Running, ScriptedChecks, body, post, settings, start_with};

const REFUSED: &str =
    r#"{"error":"Host is no address, no local name and not in HTTP_HOSTS_ALLOW"}"#;
/// Names that another party may own.
const STRANGE: [&str; 8] = [
    "attacker.example",
    "attacker.example:4040",
    "ATTACKER.EXAMPLE.",
    "localhost.attacker.example",
    "127.0.0.1.attacker.example",
    "7f000001.rebind.example",
    "battle.example.attacker.example",
    "runs.example",
];
/// Names that no other party can own, and listed names.
const GOOD: [&str; 12] = [
    "localhost",
    "LOCALHOST:4040",
    "localhost.",
    "app.localhost:1",
    "127.0.0.1:4040",
    "192.0.2.7",
    "[::1]:4040",
    "runner",
    "runner-python.codebattle.svc",
    "runner.codebattle.svc.cluster.local:80",
    "Battle.example",
    "a.runs.example:8443",
];

fn under(request: &str, host: &str) -> String {
    assert!(request.contains("host: x\r\n"), "{request}");
    request.replacen("host: x\r\n", &format!("host: {host}\r\n"), 1)
}

fn listing() -> HttpSettings {
    let listed = ["battle.example", "*.runs.example"].map(str::to_owned);
    HttpSettings { hosts_allow: listed.to_vec(), ..settings() }
}

fn serve(settings: HttpSettings) -> (Running, std::sync::Arc<ScriptedChecks>) {
    let (checks, jobs) = (ScriptedChecks::echo(), ScriptedJobs::new());
    jobs.add("j");
    (start_with(checks.clone(), Some(jobs), settings), checks)
}

#[test]
fn a_page_with_a_rebound_name_reads_nothing() {
    let (server, checks) = serve(listing());
    for host in STRANGE {
        for path in ["/status", "/metrics", "/", "/nowhere"] {
            let answer = server.ask(under(&get(path), host));
            assert_eq!((answer.status, answer.body.as_str()), (403, REFUSED), "{host} {path}");
        }
        for path in ["/v1/jobs", "/v1/jobs/j", "/v1/jobs/j/events", "/v1/jobs/j/artifacts/a"] {
            let answer = server.ask(under(&get(path), host));
            let error = assert_error(&answer, 403, "validation.invalid_request");
            assert!(error["message"].as_str().unwrap().contains("HTTP_HOSTS_ALLOW"), "{error}");
        }
        let answer = server.ask(under(&post("", &body("x")), host));
        assert_eq!((answer.status, answer.body.as_str()), (403, REFUSED), "{host}");
        assert_error(
            &server.ask(under(&submission("", JOB), host)),
            403,
            "validation.invalid_request",
        );
        // The existence of the service is no secret, and health probes use any name.
        assert_eq!(server.ask(under(HEALTH, host)).body, "ok\n", "{host}");
    }
    assert_eq!(checks.runs.load(Ordering::SeqCst), 0);
}

#[test]
fn addresses_local_names_and_listed_hosts_are_accepted() {
    let (server, _) = serve(listing());
    for host in GOOD {
        assert_eq!(server.ask(under(&get("/v1/jobs/j"), host)).status, 200, "{host}");
        assert_eq!(server.ask(under(&post("", &body("x")), host)).status, 200, "{host}");
    }
}

#[test]
fn a_refused_request_gets_no_100_continue() {
    let (server, _) = serve(settings());
    let request = post("expect: 100-continue\r\n", &body("x"));
    let (head, _) = request.split_at(request.find('{').unwrap());
    assert_eq!(server.ask(under(head, "attacker.example")).status, 403);
}

#[test]
fn the_host_in_an_absolute_url_is_checked_too() {
    let (server, _) = serve(listing());
    for (line, host, status) in [
        ("http://attacker.example/status", "localhost", 403),
        ("http://localhost/status", "attacker.example", 403),
        ("http://localhost:4040/status", "localhost", 200),
    ] {
        assert_eq!(server.ask(under(&get(line), host)).status, status, "{line} {host}");
    }
}

#[test]
fn a_missing_repeated_or_malformed_host_is_a_bad_request_on_every_path() {
    let tokens = Tokens::of([("one", "first-token-0123456789")]);
    for settings in [settings(), HttpSettings { tokens, ..settings() }] {
        let (server, _) = serve(settings);
        for path in ["/health", "/status", "/v1/jobs", "/run"] {
            for (host, words) in [
                ("", "no Host header"),
                ("host: localhost\r\nhost: localhost\r\n", "more than one Host header"),
                ("host: localhost\r\nHost: attacker.example\r\n", "more than one Host header"),
                ("host:\r\n", "malformed Host header"),
                ("host: a b\r\n", "malformed Host header"),
                ("host: http://localhost\r\n", "malformed Host header"),
                ("host: localhost, localhost\r\n", "malformed Host header"),
                ("host: localhost:65536\r\n", "malformed Host header"),
                ("host: u@localhost\r\n", "malformed Host header"),
                ("host: \u{e9}\r\n", "malformed Host header"),
            ] {
                let mut client = server.connect();
                client.send(format!("GET {path} HTTP/1.1\r\n{host}\r\n{HEALTH}"));
                let answer = client.answer();
                assert_eq!(answer.status, 400, "{path} {host:?}");
                assert!(answer.body.contains(words), "{path} {host:?}: {answer:?}");
                assert_eq!(client.rest_text(), "", "{path} {host:?}: the connection is closed");
            }
        }
    }
}

#[test]
fn an_http_1_0_client_may_omit_the_host() {
    let (server, _) = serve(settings());
    assert_eq!(server.ask("GET /status HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(server.ask("GET /status HTTP/1.0\r\nhost: attacker.example\r\n\r\n").status, 403);
}

#[test]
fn a_token_is_valid_under_every_host_and_metrics_without_one_check_the_host() {
    let token = "first-token-0123456789";
    let own = MetricsPlace::Own("127.0.0.1:0".parse().unwrap());
    let guarded = HttpSettings { tokens: Tokens::of([("one", token)]), metrics: own, ..settings() };
    let (server, _) = serve(guarded);
    let shown = |path| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: attacker.example\r\n");
        format!("{request}authorization: Bearer {token}\r\n\r\n")
    };
    assert_eq!(server.ask(shown("/v1/jobs/j")).status, 200);
    assert_eq!(server.ask(under(&get("/v1/jobs/j"), "attacker.example")).status, 401);
    let there = |host| {
        let mut client =
            Client::of(std::net::TcpStream::connect(server.metrics_address.unwrap()).unwrap());
        client.send(under(&get("/metrics"), host));
        client.answer().status
    };
    assert_eq!((there("127.0.0.1"), there("attacker.example")), (200, 403));
}
