//! A service with workspaces, and a client on one kept connection.

use cofferdam_test_server::client::{Answer, Client, request};
use cofferdam_test_server::service::{Service, Setup};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::stats::millis;

/// A service with workspaces.
pub struct Engine {
    pub service: Service,
    client: Client,
    _directory: TempDir,
}

impl Engine {
    pub fn start(setup: Setup) -> Self {
        let directory = tempdir().unwrap();
        let setup = setup.env("ENGINE_STORE_DIR", directory.path().join("engine"));
        let service = setup.env("JOBS", "off").start();
        let client = service.connect();
        Self { service, client, _directory: directory }
    }

    /// Another client of the same service.
    pub fn connect(&self) -> EngineClient {
        EngineClient(self.service.connect())
    }

    pub fn ask(&mut self, method: &str, target: &str, body: &str) -> Answer {
        self.client.ask(raw(method, target, body))
    }

    /// As [`Engine::ask`], which must succeed.
    #[track_caller]
    pub fn json(&mut self, method: &str, target: &str, body: &Value) -> Value {
        parsed(&self.ask(method, target, &body.to_string()))
    }

    #[track_caller]
    pub fn create(&mut self, body: &Value) -> String {
        path_of(&self.json("POST", "/v1/workspaces", body))
    }

    /// Forks a workspace; returns the fork and how long that took.
    #[track_caller]
    pub fn fork(&mut self, workspace: &str) -> (String, f64) {
        let request = raw("POST", &format!("{workspace}/fork"), "{}");
        let mut answer = None;
        let took = millis(|| answer = Some(self.client.ask(&request)));
        (path_of(&parsed(&answer.unwrap())), took)
    }

    #[track_caller]
    pub fn delete(&mut self, workspace: &str) {
        self.json("DELETE", workspace, &json!({}));
    }

    /// Runs a shell script, which must succeed. What it writes counts as its memory.
    #[track_caller]
    pub fn sh(&mut self, workspace: &str, script: &str) {
        let body = json!({
            "cmd": "sh", "args": ["-ec", script], "timeout_ms": 120_000, "limits": {"memory_mb": 2048},
        });
        let result = self.json("POST", &format!("{workspace}/run"), &body);
        assert_eq!(result["exit_code"], 0, "{result}");
    }

    /// A program in a workspace, to be repeated.
    pub fn program(&self, workspace: &str, cmd: &str, args: &[&str]) -> Program {
        let body = json!({"cmd": cmd, "args": args}).to_string();
        let request = raw("POST", &format!("{workspace}/run"), &body);
        Program { client: self.service.connect(), request }
    }
}

/// A client on a connection of its own.
pub struct EngineClient(Client);

impl EngineClient {
    /// Runs `true`, which must succeed.
    pub fn run_true(&mut self, workspace: &str) {
        let target = format!("{workspace}/run");
        assert_ended_well(&self.0.ask(raw("POST", &target, r#"{"cmd":"/bin/true"}"#)));
    }
}

/// The same program again and again, on one kept connection.
pub struct Program {
    client: Client,
    request: String,
}

impl Program {
    /// Runs it, which must succeed; returns how long that took.
    pub fn millis(&mut self) -> f64 {
        let mut answer = None;
        let took = millis(|| answer = Some(self.client.ask(&self.request)));
        assert_ended_well(&answer.unwrap());
        took
    }
}

#[track_caller]
fn assert_ended_well(answer: &Answer) {
    assert_eq!(parsed(answer)["exit_code"], 0, "{answer:?}");
}

#[track_caller]
fn parsed(answer: &Answer) -> Value {
    assert!(answer.status < 300, "{} {:.400}", answer.head, answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

fn path_of(created: &Value) -> String {
    format!("/v1/workspaces/{}", created["workspace_id"].as_str().unwrap())
}

fn raw(method: &str, target: &str, body: &str) -> String {
    request(method, target, &format!("content-length: {}\r\n", body.len())) + body
}
