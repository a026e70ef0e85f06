//! Workspaces of the target, and short ways to attack them.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cofferdam_test_server::exchange::{Reply, try_ask};
use cofferdam_test_server::service::{Service, wait_until};
use serde_json::{Value, json};

use super::Unexercised;
use super::observe::lines;
use super::probe::native;
use super::target::Own;

pub const WORKSPACES: &str = "/v1/workspaces";
/// Longer than any answer here takes that waits for nothing.
pub const SOON: Duration = Duration::from_secs(20);

/// A client of the engine, with a token or without.
#[derive(Debug, Clone)]
pub struct EngineClient {
    address: SocketAddr,
    headers: String,
    secret: Option<String>,
}

impl EngineClient {
    /// A client that sends these headers, which are whole lines. No answer may contain `secret`.
    pub fn new(address: SocketAddr, headers: String, secret: Option<String>) -> Self {
        Self { address, headers, secret }
    }

    /// Fails if the target has no engine.
    pub fn check_offered(&self) -> Result<(), Unexercised> {
        match self.get("/v1/engine").status {
            200 => Ok(()),
            _ => Err(Unexercised("needs the code executor engine".to_owned())),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request and reads the answer, which must not contain the secret.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, body: &[u8]) -> Reply {
        self.ask_with(method, target, "", body)
    }

    /// As [`EngineClient::ask`], with these header lines.
    #[track_caller]
    pub fn ask_with(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
        let headers = format!("{}{headers}", self.headers);
        let reply = try_ask(self.address, method, target, &headers, body);
        let reply = reply.unwrap_or_else(|| panic!("{method} {target} was not answered"));
        let leaks = |secret: &String| {
            reply.body.windows(secret.len()).any(|window| window == secret.as_bytes())
        };
        assert!(!self.secret.iter().any(leaks), "{method} {target} shows the secret");
        reply
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Reply {
        self.ask("GET", target, b"")
    }

    #[track_caller]
    pub fn post(&self, target: &str, body: &Value) -> Reply {
        self.ask("POST", target, body.to_string().as_bytes())
    }

    /// Creates a workspace.
    #[track_caller]
    pub fn create(&self, body: &Value) -> Workspace<'_> {
        self.made(&self.post(WORKSPACES, body))
    }

    /// The workspace at `path`, of whatever token.
    pub fn at(&self, path: &str) -> Workspace<'_> {
        Workspace { client: self, path: path.to_owned() }
    }

    /// The workspace that a request has made.
    #[track_caller]
    pub fn made(&self, reply: &Reply) -> Workspace<'_> {
        let view = reply.json();
        assert_eq!(reply.status, 201, "{view}");
        self.at(&format!("{WORKSPACES}/{}", view["workspace_id"].as_str().unwrap()))
    }
}

/// A workspace, which is deleted when this is dropped.
#[derive(Debug)]
pub struct Workspace<'client> {
    client: &'client EngineClient,
    pub path: String,
}

impl Workspace<'_> {
    pub fn client(&self) -> &EngineClient {
        self.client
    }

    /// Its id.
    pub fn id(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }

    /// Sends a request for what lies below it.
    #[track_caller]
    pub fn ask(&self, method: &str, below: &str, body: &[u8]) -> Reply {
        self.client.ask(method, &format!("{}{below}", self.path), body)
    }

    #[track_caller]
    pub fn get(&self, below: &str) -> Reply {
        self.ask("GET", below, b"")
    }

    #[track_caller]
    pub fn post(&self, below: &str, body: &Value) -> Reply {
        self.ask("POST", below, body.to_string().as_bytes())
    }

    /// Writes a file, which must succeed.
    #[track_caller]
    pub fn put(&self, path: &str, contents: &[u8]) {
        let reply = self.ask("PUT", &format!("/files?path={path}"), contents);
        assert!(reply.status < 300, "{path}: {}", reply.json());
    }

    /// Runs a program, which must have a result.
    #[track_caller]
    pub fn run(&self, body: &Value) -> Value {
        let reply = self.post("/run", body);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    }

    /// Runs a shell script, which must succeed, and returns its output.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        let result = self.run(&json!({"cmd": "sh", "args": ["-ec", script]}));
        assert_eq!(result["exit_code"], 0, "{result}");
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Uploads the program `tests/probes/<name>.c` and returns the path of a program.
    #[track_caller]
    pub fn upload(&self, name: &str) -> String {
        self.put(&format!("{name}&mode=0755"), &fs::read(native(name)).unwrap());
        format!("/workspace/{name}")
    }

    /// Runs the program `tests/probes/<name>.c` and returns its attempts.
    #[track_caller]
    pub fn probe(&self, name: &str, args: &[&str]) -> Vec<(String, String)> {
        let program = self.upload(name);
        let result = self.run(&json!({"cmd": program, "args": args}));
        assert_eq!(result["exit_code"], 0, "{result}");
        lines(result["stdout"].as_str().unwrap())
    }

    /// Starts a program and returns its path below the workspace.
    #[track_caller]
    pub fn start(&self, body: &Value) -> String {
        let reply = self.post("/sessions", body);
        assert_eq!(reply.status, 201, "{}", reply.json());
        format!("/sessions/{}", reply.json()["session_id"].as_str().unwrap())
    }

    /// Starts a shell script, and waits until it has printed a line.
    #[track_caller]
    pub fn start_sh(&self, script: &str, marker: &str) -> String {
        let session = self.start(&json!({"cmd": "sh", "args": ["-c", script, marker]}));
        wait_until("the first line", SOON, || {
            self.get(&session).json()["lines"].as_u64().unwrap() > 0
        });
        session
    }

    /// The used bytes and inodes.
    #[track_caller]
    pub fn used(&self) -> (u64, u64) {
        let disk = self.get("").json()["disk"].clone();
        (disk["used_bytes"].as_u64().unwrap(), disk["used_inodes"].as_u64().unwrap())
    }

    /// The paths of all entries.
    #[track_caller]
    pub fn names(&self) -> Vec<String> {
        let reply = self.get("/list?depth=20&limit=1000");
        let listed = reply.json();
        assert_eq!(reply.status, 200, "{listed}");
        let entries = listed["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        // A service that a row has broken may not answer.
        let Self { client, path } = self;
        let _ = try_ask(client.address, "DELETE", path, &client.headers, b"");
    }
}

/// How much more memory the service has had at once since this was made.
#[derive(Debug)]
pub struct PeakMemory {
    service: i32,
    before_kib: u64,
}

impl PeakMemory {
    /// Begins to measure the service.
    pub fn begin(own: &Own) -> Self {
        Self::of(&own.service)
    }

    /// Begins to measure that service.
    pub fn of(service: &Service) -> Self {
        let service = service.pid();
        // Sets the peak to what is resident now.
        fs::write(format!("/proc/{service}/clear_refs"), "5").unwrap();
        Self { service, before_kib: peak_kib(service) }
    }

    /// Panics if the service has needed more than `mib` more.
    #[track_caller]
    pub fn assert_grew_at_most(&self, mib: u64) {
        let grown = peak_kib(self.service).saturating_sub(self.before_kib);
        assert!(grown <= mib * 1024, "the service grew by {grown} KiB, above {mib} MiB");
    }
}

fn peak_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Calls `ask` and panics if the answer takes long.
#[track_caller]
pub fn promptly<T>(what: &str, ask: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = ask();
    assert!(start.elapsed() < SOON, "{what} took {:?}", start.elapsed());
    answer
}
