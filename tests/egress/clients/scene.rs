//! A sandbox whose programs may reach the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_test_server::service::cofferdam;
use hyper::Request;
use hyper::body::Bytes;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::host::{ClientsHost, HOST_NAME, HostAnswer, SeenRequest};

/// The value of the secret. Encodings change it, and it has the form of no placeholder.
pub const SECRET: &str = "sk-clients/of=the+secret";
/// Where sandboxes see the downloaded programs.
const DOWNLOADED: &str = "/egress-clients";
/// The Python with the downloaded packages.
pub const PYTHON: &str = "/egress-clients/python/bin/python3";
/// The variable with the folder of downloaded programs, which `make test-egress-clients` sets.
const DOWNLOADED_VARIABLE: &str = "EGRESS_CLIENTS";
/// What a sandbox may need on a loaded machine; clients start whole toolchains.
const LIMITS: [&str; 5] =
    ["--timeout=240s", "--memory=2GiB", "--pids=1024", "--files=1024", "--disk=1GiB"];
/// What divides the variables from what the script prints.
const END_OF_VARIABLES: &str = "=== end of variables";

/// The server, and the network of sandboxes that may reach it.
pub struct ClientScene {
    pub host: ClientsHost,
    directory: TempDir,
    binds: Vec<String>,
}

/// Rules by which every request has the secret as a bearer token.
pub fn added() -> Value {
    json!([{"headers": {"authorization": "Bearer {{secret.key}}"}}])
}

/// Rules by which requests only have the secret where programs put its placeholder.
pub fn held() -> Value {
    json!([{}])
}

impl ClientScene {
    /// Starts a server that speaks both versions of HTTP; none where sandboxes are impossible, which
    /// `REQUIRE_PRIVILEGED=1` forbids.
    pub fn start(
        rules: &Value,
        respond: impl Fn(&Request<Bytes>) -> HostAnswer + Send + Sync + 'static,
    ) -> Option<Self> {
        Self::with(&["h2", "http/1.1"], rules, respond)
    }

    /// The same over these protocols.
    pub fn with(
        protocols: &[&str],
        rules: &Value,
        respond: impl Fn(&Request<Bytes>) -> HostAnswer + Send + Sync + 'static,
    ) -> Option<Self> {
        if !geteuid().is_root() {
            let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
            assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
            eprintln!("SKIP: not root");
            return None;
        }
        let host = ClientsHost::start(protocols, respond);
        let directory = TempDir::new().unwrap();
        let name = format!("{HOST_NAME}:{}", host.port);
        let network = json!({
            "rules": {&name: rules},
            "secrets": {"key": {"value": SECRET, "hosts": [&name]}},
            "secret_env": {"API_KEY": "key", "OPENAI_API_KEY": "key"},
        });
        fs::write(directory.path().join("network.json"), network.to_string()).unwrap();
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let hosts = format!("{hosts}\n127.0.0.1 {HOST_NAME}\n");
        fs::write(directory.path().join("hosts"), hosts).unwrap();
        Some(Self { host, directory, binds: Vec::new() })
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("https://{HOST_NAME}:{}", self.host.port)
    }

    /// Shows sandboxes the folder `source` at `target`, read-only.
    #[must_use]
    pub fn showing(mut self, source: &Path, target: &str) -> Self {
        self.binds.push(format!("--bind={}:{target}:ro", source.display()));
        self
    }

    /// Shows sandboxes the downloaded programs.
    #[must_use]
    pub fn with_downloaded(self) -> Self {
        let folder = std::env::var_os(DOWNLOADED_VARIABLE).map(PathBuf::from);
        let folder = folder.expect("EGRESS_CLIENTS is set by `make test-egress-clients`");
        self.showing(&folder, DOWNLOADED)
    }

    /// Runs a shell script in a sandbox, which must succeed, and returns what it prints. `$URL` is the server's.
    /// Neither the environment nor what the program prints has the secret.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let script = format!("env; echo '{END_OF_VARIABLES}'; set -e\n{script}");
        let file = |name: &str| self.directory.path().join(name);
        // The host's file of names stays as it is for all others.
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""])
            .arg(file("hosts"))
            .arg(cofferdam())
            .arg("exec")
            .arg("--network")
            .arg(file("network.json"))
            .args(LIMITS)
            .args(&self.binds)
            .args([&format!("--env=URL={}", self.url()), "--", "sh", "-c", &script])
            .env("EXEC_HOSTS_ALLOW", HOST_NAME)
            .env("EGRESS_CA_FILE", self.host.certificate_file())
            .output()
            .unwrap();
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let said = format!("{stdout}{stderr}\nseen: {:?}", self.host.seen());
        assert!(output.status.success(), "{:?}: {said}", output.status);
        assert!(![stdout.as_str(), &stderr].concat().contains(SECRET), "{said}");
        let (variables, printed) = stdout.split_once(END_OF_VARIABLES).unwrap();
        let keys = variables.lines().filter_map(|line| line.split_once("API_KEY="));
        let keys: Vec<_> = keys.map(|(_, value)| value).collect();
        assert_eq!(keys.len(), 2, "{said}");
        assert!(keys.iter().all(|value| value.starts_with("cofferdam_secret_")), "{said}");
        printed.trim_start().to_owned()
    }

    /// What the server was asked for, each time with the secret as a bearer token.
    #[track_caller]
    pub fn seen_with_secret(&self) -> Vec<SeenRequest> {
        let seen = self.host.seen();
        assert!(!seen.is_empty());
        for request in &seen {
            let given = request.headers.get_all("authorization");
            let given: Vec<_> = given.iter().filter_map(|value| value.to_str().ok()).collect();
            assert_eq!(given, [format!("Bearer {SECRET}")], "{request:?}");
        }
        seen
    }
}
