//! A service with workspaces, and short ways to ask it.

use cofferdam_test_server::service::{Service, Setup};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::exchange::{Reply, TOKENS, ask, engine_server};

/// A service whose engine has a directory of its own.
#[derive(Debug)]
pub struct EngineScene {
    pub service: Service,
    _directory: TempDir,
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
    let setup = engine_server(&directory.path().join("engine")).env("JOBS", "off");
    let setup = variables.iter().fold(setup, |setup: Setup, (name, value)| setup.env(name, value));
    Some(EngineScene { service: setup.start(), _directory: directory })
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
