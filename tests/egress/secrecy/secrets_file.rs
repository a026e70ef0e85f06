//! The service's own secrets: who may use them, and what SIGHUP changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use cofferdam_test_server::exchange::{Reply, try_ask};
use cofferdam_test_server::service::{Service, Setup, cofferdam};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::origin::Origin;
use crate::support::{is_privileged, sha256};

const FIRST: &str = "sk-the-first-value-of-it";
const SECOND: &str = "sk-the-second-value-of-it";
const CI: &str = "authorization: Bearer token-of-ci-0123456789\r\n";
const OTHER: &str = "authorization: Bearer token-of-other-0123456789\r\n";
const PATIENCE: Duration = Duration::from_secs(60);

struct SecretsScene {
    origin: Origin,
    directory: TempDir,
}

impl SecretsScene {
    fn new() -> Self {
        let scene = Self { origin: Origin::start(), directory: TempDir::new().unwrap() };
        fs::create_dir(scene.directory.path().join("work")).unwrap();
        scene
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Writes the file of secrets, with `more` behind the fields of `key`, and the value of that.
    fn write_secrets(&self, value: &str, more: &str) {
        self.write("key", &format!("{value}\n"), 0o600);
        let host = self.host();
        let text = format!("[key]\nfile = \"key\"\nhosts = [\"{host}\"]\n{more}");
        self.write("secrets.toml", &text, 0o600);
    }

    fn setup(&self) -> Setup {
        let path = |name: &str| self.directory.path().join(name);
        Setup::shell()
            .env("JOBS_STORE_DIR", path("jobs"))
            .env("ENGINE_STORE_DIR", path("engine"))
            .env("SECRETS_FILE", path("secrets.toml"))
            .env("ENGINE_NETWORK_HOSTS", "localhost:*")
            .env("ENGINE_HOSTS_ALLOW", "localhost")
            .env("JOBS_NETWORK_HOSTS", "localhost:*")
            .env("JOBS_HOSTS_ALLOW", "localhost")
    }

    fn host(&self) -> String {
        format!("localhost:{}", self.origin.plain)
    }

    /// A network whose requests have the secret `name` of the service.
    fn network(&self, name: &str) -> Value {
        let header = format!("Bearer {{{{secret.{name}}}}}");
        json!({"rules": {self.host(): [{"plain": true, "headers": {"authorization": header}}]}})
    }

    fn create(&self, service: &Service) -> String {
        let made = post(service, "", "/v1/workspaces", &json!({"network": self.network("key")}));
        created(&made)
    }

    /// The digest of the credentials that the host gets from a workspace.
    #[track_caller]
    fn sent(&self, service: &Service, workspace: &str) -> Value {
        let script = format!("curl -sS -m 20 http://{}/sum", self.host());
        let body = json!({"cmd": "sh", "args": ["-c", script]});
        post(service, "", &format!("{workspace}/run"), &body).json()["stdout"].clone()
    }
}

fn post(service: &Service, headers: &str, target: &str, body: &Value) -> Reply {
    try_ask(service.address, "POST", target, headers, body.to_string().as_bytes()).unwrap()
}

#[track_caller]
fn created(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{}", reply.json());
    format!("/v1/workspaces/{}", reply.json()["workspace_id"].as_str().unwrap())
}

fn sum_of(value: &str) -> Value {
    json!(sha256(&format!("Bearer {value}")))
}

#[test]
fn sighup_reads_secrets_anew_for_what_begins_later_and_keeps_them_if_that_fails() {
    if !is_privileged() {
        return;
    }
    let scene = SecretsScene::new();
    scene.write_secrets(FIRST, "");
    let service = scene.setup().start();
    let (used, unused) = (scene.create(&service), scene.create(&service));
    assert_eq!(scene.sent(&service, &used), sum_of(FIRST));
    scene.write_secrets(SECOND, "");
    service.signal(Signal::SIGHUP);
    service.log.wait_for("read 1 secrets");
    let later = scene.create(&service);
    assert_eq!(scene.sent(&service, &later), sum_of(SECOND));
    // Those that are live keep theirs, whether they have been used or not.
    for workspace in [&used, &unused] {
        assert_eq!(scene.sent(&service, workspace), sum_of(FIRST), "{workspace}");
    }
    scene.write("key", "sk-never-read-anywhere\n", 0o604);
    service.signal(Signal::SIGHUP);
    service.log.wait_for("the secrets are as before");
    let after = scene.create(&service);
    assert_eq!(scene.sent(&service, &after), sum_of(SECOND));
    // A secret that is gone is gone for what begins later.
    scene.write("secrets.toml", "", 0o600);
    service.signal(Signal::SIGHUP);
    service.log.wait_for("read 0 secrets");
    let body = json!({"network": scene.network("key")});
    let denied = post(&service, "", "/v1/workspaces", &body);
    denied.assert_error(403, "policy.secret_denied");
    assert_eq!(scene.sent(&service, &after), sum_of(SECOND));
    let log = service.log.text();
    assert!(![FIRST, SECOND, "sk-never"].iter().any(|value| log.contains(value)), "{log}");
}

#[test]
fn secrets_that_everybody_can_read_refuse_the_start_unless_any_mode_will_do() {
    let scene = SecretsScene::new();
    scene.write_secrets(FIRST, "");
    for (name, mode) in [("secrets.toml", 0o644), ("key", 0o644)] {
        let text = fs::read_to_string(scene.directory.path().join(name)).unwrap();
        scene.write(name, &text, mode);
        let (code, log) = scene.setup().refused();
        assert_eq!(code, Some(2), "{log}");
        assert!(log.contains("SECRETS_FILE") && log.contains("everybody on this host"), "{log}");
        assert!(!log.contains(FIRST), "{log}");
        drop(scene.setup().env("SECRETS_FILE_MODE", "any").start());
        scene.write(name, &text, 0o640);
        let service = scene.setup().start();
        service.log.wait_for("its group can read it");
    }
    fs::remove_file(scene.directory.path().join("key")).unwrap();
    let (code, log) = scene.setup().refused();
    assert!(code == Some(2) && log.contains("No such file"), "{log}");
}

#[test]
fn a_rule_that_sends_a_secret_to_a_host_that_it_is_not_for_is_refused_wherever_jobs_are_asked_for()
{
    if !is_privileged() {
        return;
    }
    let scene = SecretsScene::new();
    scene.write_secrets(FIRST, "");
    let network = json!({"rules": {"localhost:1": [{"query": {"key": "{{secret.key}}"}}]}});
    let request = json!({
        "workspace": {"source": "local_path", "path": scene.directory.path().join("work")},
        "command": {"argv": ["true"]},
        "policy": {"allowed_commands": ["true"], "network": network},
    });
    let path = "policy.network.rules.localhost:1[0].query.key";
    let service = scene.setup().start();
    let error = post(&service, "", "/v1/jobs", &request);
    let error = error.assert_error(422, "validation.invalid_request");
    assert_eq!(error["details"]["path"], path, "{error}");
    drop(service);
    scene.write("request.json", &request.to_string(), 0o600);
    for command in ["run", "validate"] {
        let output = Command::new(cofferdam())
            .args(["job", command])
            .arg(scene.directory.path().join("request.json"))
            .env("SECRETS_FILE", scene.directory.path().join("secrets.toml"))
            .env("JOBS_STORE_DIR", scene.directory.path().join("jobs"))
            .output()
            .unwrap();
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(2), "{command}: {stdout}{stderr}");
        assert!(stdout.contains(path) || stderr.contains(path), "{command}: {stdout}{stderr}");
        assert!(!stdout.contains(FIRST) && !stderr.contains(FIRST), "{command}");
    }
}

#[test]
fn a_secret_is_for_the_tokens_that_its_file_names() {
    if !is_privileged() {
        return;
    }
    let scene = SecretsScene::new();
    scene.write_secrets(FIRST, "tokens = [\"ci\"]\n");
    let tokens = "ci token-of-ci-0123456789\nother token-of-other-0123456789\n";
    scene.write("tokens", tokens, 0o600);
    let tokens = scene.directory.path().join("tokens");
    let service = scene.setup().env("AUTH_TOKENS_FILE", tokens).start();
    let ask = |headers: &str, method: &str, target: &str, body: &Value| {
        try_ask(service.address, method, target, headers, body.to_string().as_bytes()).unwrap()
    };
    let with_key = json!({"network": scene.network("key")});
    let mine = created(&ask(CI, "POST", "/v1/workspaces", &with_key));
    let run = json!({
        "cmd": "curl", "args": ["-sS", "-m", "20", format!("http://{}/sum", scene.host())]
    });
    assert_eq!(ask(CI, "POST", &format!("{mine}/run"), &run).json()["stdout"], sum_of(FIRST));
    let others = created(&ask(OTHER, "POST", "/v1/workspaces", &json!({})));
    for (name, headers) in [("key", OTHER), ("nobody", CI), ("nobody", OTHER)] {
        let own = if headers == CI { &mine } else { &others };
        let (body, network) = (json!({"network": scene.network(name)}), scene.network(name));
        for (method, target, body) in [
            ("POST", "/v1/workspaces".to_owned(), &body),
            ("POST", format!("{own}/fork"), &body),
            ("PUT", format!("{own}/network"), &network),
        ] {
            let error = ask(headers, method, &target, body);
            let error = error.assert_error(403, "policy.secret_denied");
            assert_eq!(error["details"]["name"], name, "{target}: {error}");
        }
    }
    let job = |headers: &str| {
        let request = json!({
            "workspace": {"source": "local_path", "path": scene.directory.path().join("work")},
            "command": {"argv": ["curl", "-sS", "-m", "20", format!("http://{}/sum", scene.host())]},
            "policy": {"allowed_commands": ["curl"], "network": scene.network("key")},
        });
        let posted = ask(headers, "POST", "/v1/jobs", &request);
        assert_eq!(posted.status, 202, "{}", posted.json());
        let target = format!("/v1/jobs/{}", posted.json()["job_id"].as_str().unwrap());
        let began = Instant::now();
        loop {
            let answer = ask(headers, "GET", &target, &json!({})).json();
            if !["queued", "running"].contains(&answer["status"].as_str().unwrap()) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "{answer}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    assert_eq!(job(CI)["stdout"]["text"], sum_of(FIRST));
    let denied = job(OTHER);
    assert_eq!(denied["status"], "policy_denied", "{denied}");
    assert_eq!(denied["error"]["code"], "policy.secret_denied", "{denied}");
    assert_eq!(denied["error"]["details"]["name"], "key", "{denied}");
}
