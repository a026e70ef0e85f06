//! A service with workspaces, and short ways to ask it.

use std::path::PathBuf;
use std::time::Duration;

use cofferdam_test_server::service::{Service, Setup};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::exchange::{Reply, TOKENS, ask, engine_server};

/// A service whose engine has a directory of its own.
#[derive(Debug)]
pub struct EngineScene {
    pub service: Service,
    directory: TempDir,
    variables: Vec<(String, String)>,
}

/// Starts a service with these variables; none where workspaces are impossible, which
/// `REQUIRE_PRIVILEGED=1` forbids.
pub fn scene(variables: &[(&str, &str)]) -> Option<EngineScene> {
    if !geteuid().is_root() {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: not root");
        return None;
    }
    let directory = tempdir().unwrap();
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let variables: Vec<_> = variables.iter().map(owned).collect();
    let service = start(&directory, &variables);
    Some(EngineScene { service, directory, variables })
}

fn start(directory: &TempDir, variables: &[(String, String)]) -> Service {
    let setup = engine_server(&directory.path().join("engine")).env("JOBS", "off");
    let set = |setup: Setup, (name, value): &(String, String)| setup.env(name, value);
    variables.iter().fold(setup, set).start()
}

/// As [`scene`], with the tokens of [`TOKENS`].
pub fn scene_with_tokens(variables: &[(&str, &str)]) -> Option<EngineScene> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = TOKENS.map(|(name, token)| format!("{name} {token}\n")).concat();
    std::fs::write(file.path(), lines).unwrap();
    // The service reads it at its start.
    scene(&[variables, &[("AUTH_TOKENS_FILE", file.path().to_str().unwrap())]].concat())
}

/// The header with the token of that client.
pub fn bearer(client: usize) -> String {
    format!("authorization: Bearer {}\r\n", TOKENS[client].1)
}

impl EngineScene {
    /// The directory of the engine's store.
    pub fn store(&self) -> PathBuf {
        self.directory.path().join("engine")
    }

    /// Kills the service and starts another over the same directory.
    pub fn kill_and_start(&mut self) {
        self.service.kill();
        self.service = start(&self.directory, &self.variables);
    }

    /// Ends the service as an operator does, and starts another over the same directory.
    #[track_caller]
    pub fn drain_and_start(&mut self) {
        self.service.signal(Signal::SIGTERM);
        assert_eq!(self.service.wait_end(Duration::from_secs(60)).code(), Some(0));
        self.service = start(&self.directory, &self.variables);
    }

    pub fn get(&self, target: &str) -> Reply {
        ask(&self.service, "GET", target, "", b"")
    }

    pub fn delete(&self, target: &str) -> Reply {
        ask(&self.service, "DELETE", target, "", b"")
    }

    pub fn post(&self, target: &str, body: &Value) -> Reply {
        self.post_with(target, "", body)
    }

    pub fn post_with(&self, target: &str, headers: &str, body: &Value) -> Reply {
        ask(&self.service, "POST", target, headers, body.to_string().as_bytes())
    }

    pub fn put(&self, target: &str, bytes: &[u8]) -> Reply {
        ask(&self.service, "PUT", target, "", bytes)
    }

    /// Creates a workspace and returns its path.
    #[track_caller]
    pub fn create(&self, body: &Value) -> String {
        let reply = self.post("/v1/workspaces", body);
        assert_eq!(reply.status, 201, "{}", reply.json());
        format!("/v1/workspaces/{}", reply.json()["workspace_id"].as_str().unwrap())
    }

    /// Runs a program, which must have a result.
    #[track_caller]
    pub fn run(&self, workspace: &str, body: &Value) -> Value {
        let reply = self.post(&format!("{workspace}/run"), body);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    }

    /// Runs a shell script, which must succeed, and returns its output.
    #[track_caller]
    pub fn sh(&self, workspace: &str, script: &str) -> String {
        let result = self.run(workspace, &json!({"cmd": "sh", "args": ["-ec", script]}));
        assert_eq!(result["exit_code"], 0, "{result}");
        result["stdout"].as_str().unwrap().to_owned()
    }
}
