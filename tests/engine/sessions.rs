//! `/v1/workspaces/{id}/sessions`: programs that talk, without viewers.

use std::time::{Duration, Instant};

use cofferdam_test_server::host::tenants;
use cofferdam_test_server::service::{Service, wait_until};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::exchange::{Reply, TOKENS, ask, engine_server};

const SOON: Duration = Duration::from_secs(20);

/// A workspace of a service, for requests below it.
pub struct TestWorkspace {
    pub service: Service,
    pub path: String,
    _directory: TempDir,
}

impl TestWorkspace {
    pub fn new() -> Self {
        Self::of(&[])
    }

    pub fn of(variables: &[(&str, &str)]) -> Self {
        let directory = tempdir().unwrap();
        let setup = engine_server(&directory.path().join("engine"));
        let setup = variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
        let service = setup.start();
        let made = ask(&service, "POST", "/v1/workspaces", "", b"{}");
        assert_eq!(made.status, 201, "{}", made.json());
        let id = made.json()["workspace_id"].as_str().unwrap().to_owned();
        Self { service, path: format!("/v1/workspaces/{id}"), _directory: directory }
    }

    pub fn post(&self, below: &str, body: &Value) -> Reply {
        let target = format!("{}/{below}", self.path);
        ask(&self.service, "POST", &target, "", body.to_string().as_bytes())
    }

    pub fn get(&self, below: &str) -> Reply {
        ask(&self.service, "GET", &format!("{}/{below}", self.path), "", b"")
    }

    /// Starts `script` in a shell; returns the path of the session.
    pub fn start(&self, script: &str) -> String {
        self.start_with(&json!({"cmd": "sh", "args": ["-c", script]}))
    }

    pub fn start_with(&self, body: &Value) -> String {
        let started = self.post("sessions", body);
        assert_eq!(started.status, 201, "{}", started.json());
        format!("sessions/{}", started.json()["session_id"].as_str().unwrap())
    }

    pub fn ok(&self, below: &str, body: &Value) -> Value {
        let reply = self.post(below, body);
        assert_eq!(reply.status, 200, "{below}: {}", reply.json());
        reply.json()
    }

    /// Waits for the end of a session; returns its result.
    pub fn result(&self, session: &str) -> Value {
        let exited = || self.get(session).json()["status"] == "exited";
        wait_until("the session has not ended", SOON, exited);
        let result = self.get(&format!("{session}/result"));
        assert_eq!(result.status, 200);
        result.json()
    }

    /// Polls until the session has printed `text`, which ends a line.
    pub fn wait_for(&self, session: &str, text: &str) {
        let mut seen = String::new();
        wait_until(text, SOON, || {
            let page = self.ok(&format!("{session}/poll"), &json!({"wait_ms": 1000}));
            seen.push_str(page["output"].as_str().unwrap());
            seen.push('\n');
            seen.contains(&format!("{text}\n"))
        });
    }
}

#[test]
fn a_session_is_written_to_polled_and_ends_with_its_result() {
    let workspace = TestWorkspace::new();
    let body = json!({"cmd": "cat", "stdin": "first\n"});
    let started = workspace.post("sessions", &body);
    let state = started.json();
    let id = state["session_id"].as_str().unwrap();
    let session = format!("sessions/{id}");
    assert_eq!(started.header("location"), Some(&*format!("{}/{session}", workspace.path)));
    assert_eq!((&state["status"], &state["exit_code"]), (&json!("running"), &json!(null)));
    assert_eq!((&state["tty"], &state["cols"]), (&json!(false), &json!(null)));
    assert_eq!(state["stdin_open"], true);
    workspace.get(&format!("{session}/result")).assert_error(409, "session.running");
    workspace.wait_for(&session, "first");
    let written = workspace.ok(&format!("{session}/write"), &json!({"data": "é", "newline": true}));
    assert_eq!(written, json!({"written": 3}));
    let page = workspace.ok(&format!("{session}/poll"), &json!({"wait_ms": 20_000}));
    let expected = json!({"status": "running", "output": "é", "encoding": "utf-8", "offset": 1,
                          "next_offset": 2, "exit_code": null, "partial": false});
    assert_eq!(page, expected);
    workspace.ok(&format!("{session}/write"), &json!({"data": "/w==", "encoding": "base64"}));
    let partial = || workspace.ok(&format!("{session}/poll"), &json!({}))["partial"] == true;
    wait_until("the unfinished line", SOON, partial);
    let page = workspace.ok(&format!("{session}/poll"), &json!({"limit": -1}));
    let expected = json!({"status": "running", "output": "/w==", "encoding": "base64", "offset": 2,
                          "next_offset": 2, "exit_code": null, "partial": true});
    assert_eq!(page, expected);
    assert_eq!(workspace.ok(&format!("{session}/close-stdin"), &json!({}))["stdin_open"], false);
    let result = workspace.result(&session);
    assert_eq!((&result["exit_code"], &result["outcome"]), (&json!(0), &json!("exited")));
    assert_eq!(result["stdout"], "Zmlyc3QKw6kK/w==");
    let last = workspace.ok(&format!("{session}/poll"), &json!({}));
    assert_eq!((&last["exit_code"], &last["next_offset"]), (&json!(0), &json!(3)));
    let log = workspace.get(&format!("{session}/log?offset=1&limit=1")).json();
    let expected = json!({"output": "é", "encoding": "utf-8", "offset": 1, "next_offset": 2,
                          "partial": false});
    assert_eq!(log, expected);
    let state = workspace.get(&session).json();
    assert_eq!((&state["lines"], &state["bytes"]), (&json!(3), &json!(10)));
    assert_eq!((&state["status"], &state["stdin_open"]), (&json!("exited"), &json!(false)));
    assert!(state["exited_at"].is_string());
}

#[test]
fn a_wait_ends_with_output_or_with_the_program() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("read line; echo $line; read line");
    let began = Instant::now();
    let page = workspace.ok(&format!("{session}/poll"), &json!({"wait_ms": 300}));
    assert_eq!(page["output"], "");
    assert!(began.elapsed() >= Duration::from_millis(300));
    // Each of these two polls would otherwise wait for a minute.
    for _ in 0..2 {
        let began = Instant::now();
        workspace.ok(&format!("{session}/write"), &json!({"data": "x", "newline": true}));
        workspace.ok(&format!("{session}/poll"), &json!({"wait_ms": 60_000}));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    // What a poll has shown of an unfinished line is no news; the rest of it is.
    let prompt = workspace.start("printf 'name? '; read line; printf \"hello $line\"; read line");
    let page = |wait_ms: u64| workspace.ok(&format!("{prompt}/poll"), &json!({"wait_ms": wait_ms}));
    assert_eq!(page(60_000)["output"], "name? ");
    let began = Instant::now();
    let again = page(300);
    assert_eq!((&again["output"], &again["partial"]), (&json!("name? "), &json!(true)));
    assert!(began.elapsed() >= Duration::from_millis(300));
    workspace.ok(&format!("{prompt}/write"), &json!({"data": "x", "newline": true}));
    assert_eq!(page(60_000)["output"], "name? hello x");
    let too_long = workspace.post(&format!("{session}/poll"), &json!({"wait_ms": 60_001}));
    let error = too_long.assert_error(422, "validation.invalid_request");
    assert_eq!(error["details"]["path"], "wait_ms");
}

#[test]
fn what_is_written_after_the_end_is_refused_and_nothing_is_not() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("exec 0<&-; echo closed; sleep 1000");
    workspace.wait_for(&session, "closed");
    let write = format!("{session}/write");
    let data = json!({"data": "x"});
    let refused = || workspace.post(&write, &data).status == 409;
    wait_until("input is refused", SOON, refused);
    workspace.post(&write, &data).assert_error(409, "session.stdin_closed");
    assert_eq!(workspace.ok(&write, &json!({})), json!({"written": 0}));
    workspace.ok(&format!("{session}/kill"), &json!({}));
    workspace.post(&write, &data).assert_error(409, "session.not_running");
    assert_eq!(workspace.ok(&write, &json!({"data": ""})), json!({"written": 0}));
    let signal = json!({"signal": "TERM"});
    workspace.post(&format!("{session}/signal"), &signal).assert_error(409, "session.not_running");
    workspace
        .post(&format!("{session}/close-stdin"), &json!({}))
        .assert_error(409, "session.not_running");
}

#[test]
fn input_that_is_not_read_is_bounded_and_none_of_too_much_is_taken() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("until [ -e go ]; do sleep 0.01; done; cat | wc -c");
    let write = format!("{session}/write");
    let half = json!({"data": "x".repeat(700 << 10)});
    workspace.ok(&write, &half);
    workspace.post(&write, &half).assert_error(429, "session.input_full");
    workspace.ok("files", &json!({"files": [{"path": "go"}]}));
    let taken = || workspace.post(&write, &half).status == 200;
    wait_until("the program reads", SOON, taken);
    workspace.ok(&format!("{session}/close-stdin"), &json!({}));
    let result = workspace.result(&session);
    assert_eq!(result["stdout"].as_str().unwrap().trim(), (1400 << 10).to_string());
}

#[test]
fn a_kill_asks_first_and_then_ends_everything_that_was_started() {
    let workspace = TestWorkspace::new();
    let pid = workspace.service.pid();
    let polite =
        workspace.start("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done");
    workspace.wait_for(&polite, "up");
    let state = workspace.ok(&format!("{polite}/kill"), &json!({"grace_ms": 20_000}));
    assert_eq!((&state["status"], &state["exit_code"]), (&json!("exited"), &json!(7)));
    let result = workspace.result(&polite);
    assert_eq!((&result["outcome"], &result["stdout"]), (&json!("exited"), &json!("up\nbye\n")));

    let plain = workspace.start("echo up; exec sleep 1000");
    workspace.wait_for(&plain, "up");
    workspace.ok(&format!("{plain}/kill"), &json!({}));
    let result = workspace.result(&plain);
    assert_eq!((&result["outcome"], &result["signal"]), (&json!("signaled"), &json!(15)));

    let stubborn = workspace.start(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & (sleep 1000 &) ; echo up; sleep 1000; sleep 1000",
    );
    workspace.wait_for(&stubborn, "up");
    let began = Instant::now();
    let state = workspace.ok(&format!("{stubborn}/kill"), &json!({"grace_ms": 400}));
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!((&state["exit_code"], &state["signal"]), (&json!(-1), &json!(null)));
    assert_eq!(workspace.result(&stubborn)["outcome"], "cancelled");
    assert!(tenants(pid).is_empty(), "{:?}", tenants(pid));
}

#[test]
fn the_sandbox_ends_with_its_main_process_whoever_holds_its_pipes() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("setsid sleep 1000 & (sleep 1000 &); echo done");
    let result = workspace.result(&session);
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(0), &json!("done\n")));
    let pid = workspace.service.pid();
    assert!(tenants(pid).is_empty(), "{:?}", tenants(pid));
}

#[test]
fn a_signal_reaches_the_main_process_and_its_number_is_told() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("trap 'echo got' USR1; echo up; while :; do sleep 0.01; done");
    workspace.wait_for(&session, "up");
    assert_eq!(
        workspace.ok(&format!("{session}/signal"), &json!({"signal": "USR1"}))["status"],
        "running"
    );
    workspace.wait_for(&session, "got");
    workspace.ok(&format!("{session}/signal"), &json!({"signal": "SIGKILL"}));
    let result = workspace.result(&session);
    assert_eq!((&result["outcome"], &result["signal"]), (&json!("signaled"), &json!(9)));
    let wrong = workspace.post(&format!("{session}/signal"), &json!({"signal": "NOPE"}));
    assert_eq!(wrong.assert_error(422, "validation.invalid_request")["details"]["path"], "signal");
}

#[test]
fn a_program_that_cannot_be_executed_makes_no_session() {
    let workspace = TestWorkspace::new();
    for cmd in ["no-such-program", "/etc/passwd", "./work"] {
        workspace.post("sessions", &json!({"cmd": cmd})).assert_error(422, "run.spawn_failed");
    }
    let wrong = workspace.post("sessions", &json!({"cmd": "cat", "colour": 1}));
    assert_eq!(wrong.assert_error(422, "validation.invalid_request")["details"]["path"], "colour");
    assert_eq!(workspace.get("sessions").json(), json!({"sessions": [], "next_cursor": null}));
    assert_eq!(
        workspace.get("sessions/s_1").assert_error(404, "session.not_found")["details"],
        json!({})
    );
}

#[test]
fn a_closed_session_is_gone_and_so_is_what_it_ran() {
    let workspace = TestWorkspace::new();
    let sessions: Vec<String> = (0..3).map(|_| workspace.start("exec sleep 1000")).collect();
    let first = workspace.get("sessions?limit=2").json();
    assert_eq!(first["sessions"].as_array().unwrap().len(), 2);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = workspace.get(&format!("sessions?limit=2&cursor={cursor}")).json();
    assert_eq!(
        (rest["sessions"].as_array().unwrap().len(), &rest["next_cursor"]),
        (1, &json!(null))
    );
    let path = format!("{}/{}", workspace.path, sessions[1]);
    let closed = ask(&workspace.service, "DELETE", &path, "", b"");
    assert_eq!((closed.status, closed.body.len()), (204, 0));
    workspace.get(&sessions[1]).assert_error(404, "session.not_found");
    assert_eq!(tenants(workspace.service.pid()).len(), 2);
    let cleaned = ask(&workspace.service, "DELETE", &workspace.path, "", b"");
    assert_eq!(cleaned.status, 200);
    workspace.get(&sessions[0]).assert_error(404, "workspace.not_found");
    assert!(tenants(workspace.service.pid()).is_empty());
}

#[test]
fn a_workspace_has_a_bounded_number_of_sessions_and_forgets_ended_ones_first() {
    let workspace = TestWorkspace::of(&[("ENGINE_SESSIONS_MAX", "2")]);
    let ended = workspace.start("true");
    workspace.result(&ended);
    let live: Vec<String> = (0..2).map(|_| workspace.start("sleep 1000")).collect();
    workspace.get(&ended).assert_error(404, "session.not_found");
    let body = json!({"cmd": "true"});
    let refused = workspace.post("sessions", &body).assert_error(429, "workspace.limit");
    assert_eq!(refused["details"]["limit"], "sessions");
    workspace.ok(&format!("{}/kill", live[0]), &json!({}));
    workspace.start("true");
}

#[test]
fn the_record_of_an_ended_session_is_kept_for_a_while_only() {
    let workspace = TestWorkspace::of(&[("ENGINE_SESSION_KEEP", "1s")]);
    let session = workspace.start("true");
    workspace.result(&session);
    wait_until("it is forgotten", SOON, || workspace.get(&session).status == 404);
}

#[test]
fn a_session_has_its_own_time_limit() {
    let workspace = TestWorkspace::new();
    let body = json!({"cmd": "sh", "args": ["-c", "echo up; sleep 1000"], "timeout_ms": 2000});
    let session = workspace.start_with(&body);
    let result = workspace.result(&session);
    assert_eq!((&result["timed_out"], &result["stdout"]), (&json!(true), &json!("up\n")));
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("timed_out"), &json!(-1)));
}

#[test]
fn sessions_of_another_token_are_not_found() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("tokens");
    let lines = TOKENS.map(|(name, token)| format!("{name} {token}\n")).concat();
    std::fs::write(&file, lines).unwrap();
    let service =
        engine_server(&directory.path().join("engine")).env("AUTH_TOKENS_FILE", &file).start();
    let [one, two] = TOKENS.map(|(_, token)| format!("authorization: Bearer {token}\r\n"));
    let made = ask(&service, "POST", "/v1/workspaces", &one, b"{}").json();
    let path = format!("/v1/workspaces/{}/sessions", made["workspace_id"].as_str().unwrap());
    let started = ask(&service, "POST", &path, &one, br#"{"cmd":"cat"}"#).json();
    let session = format!("{path}/{}", started["session_id"].as_str().unwrap());
    assert_eq!(ask(&service, "GET", &session, &one, b"").status, 200);
    for (method, target) in
        [("GET", session.clone()), ("POST", format!("{session}/kill")), ("GET", path)]
    {
        ask(&service, method, &target, &two, b"").assert_error(404, "workspace.not_found");
    }
}

#[test]
fn much_output_blocks_nothing_and_the_window_keeps_the_last_lines() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("seq 1 1000000; echo end >&2");
    let result = workspace.result(&session);
    assert_eq!((&result["exit_code"], &result["stdout_truncated"]), (&json!(0), &json!(true)));
    let state = workspace.get(&session).json();
    assert_eq!(state["lines"], 1_000_001);
    let first = state["first_line"].as_u64().unwrap();
    assert!(state["bytes"].as_u64().unwrap() > 6_000_000);
    let page = workspace.get(&format!("{session}/log?limit=2")).json();
    assert_eq!(page["offset"], first);
    assert_eq!(page["output"], format!("{}\n{}", first + 1, first + 2));
    let page = workspace.ok(&format!("{session}/poll"), &json!({"limit": 1}));
    assert_eq!(
        (&page["offset"], &page["output"]),
        (&json!(first), &json!((first + 1).to_string()))
    );
}

/// A session with a terminal that runs `script` in bash.
fn terminal(workspace: &TestWorkspace, script: &str) -> String {
    workspace.start_with(&json!({"cmd": "bash", "args": ["-c", script], "tty": true, "cols": 100}))
}

#[test]
fn a_terminal_has_a_size_that_changes_and_one_stream() {
    let workspace = TestWorkspace::new();
    let session =
        terminal(&workspace, "tty; stty size; echo err >&2; read line; stty size; tty </dev/tty");
    let state = workspace.get(&session).json();
    assert_eq!(
        (&state["tty"], &state["cols"], &state["rows"]),
        (&json!(true), &json!(100), &json!(24))
    );
    workspace.wait_for(&session, "/dev/pts/0\n24 100\nerr");
    let size = json!({"cols": 33, "rows": 7});
    let state = workspace.ok(&format!("{session}/resize"), &size);
    assert_eq!((&state["cols"], &state["rows"]), (&json!(33), &json!(7)));
    workspace.ok(&format!("{session}/write"), &json!({"data": "x", "newline": true}));
    let result = workspace.result(&session);
    // CRLF of the terminal reads as LF in lines, and is what it is in the result.
    assert_eq!((&result["exit_code"], &result["stderr"]), (&json!(0), &json!("")));
    let log = workspace.get(&format!("{session}/log")).json();
    assert!(log["output"].as_str().unwrap().ends_with("\n7 33\n/dev/tty"), "{log}");
    let zero = workspace.post(&format!("{session}/resize"), &json!({"cols": 0, "rows": 7}));
    assert_eq!(zero.assert_error(422, "validation.invalid_request")["details"]["path"], "cols");
}

#[test]
fn keys_of_a_terminal_reach_its_foreground_and_its_end_of_input_is_typed() {
    let workspace = TestWorkspace::new();
    let session = terminal(
        &workspace,
        "sh -c 'trap \"echo int; exit\" INT; echo up; while :; do sleep 0.01; done'; echo after; cat; echo end",
    );
    workspace.wait_for(&session, "up");
    workspace.ok(&format!("{session}/signal"), &json!({"signal": "INT"}));
    workspace.wait_for(&session, "after");
    let state = workspace.ok(&format!("{session}/close-stdin"), &json!({}));
    assert_eq!(state["stdin_open"], true);
    workspace.wait_for(&session, "end");
    assert_eq!(workspace.result(&session)["exit_code"], 0);
}
