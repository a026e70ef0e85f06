//! Where a secret is while programs use it, and afterwards: in the memory of the service alone. What was
//! planted on purpose is found by the same search in each kind of place. `secrets_file` is about where secrets
//! come from.

mod search;
mod secrets_file;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_test_server::exchange::{Reply, try_ask};
use cofferdam_test_server::host::has_process;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::search::{Search, spellings};
use crate::origin::Origin;
use crate::support::is_privileged;

/// The secret of the service, that of requests, and what is planted. None has letters of another.
const KEPT: &str = "kept-9f+/Zk&\"q%7\\x-of-the-service";
const GIVEN: &str = "given-3b+/Yt&\"w%5\\x-with-requests";
const PLANTED: &str = "planted-7c+/Xr&\"e%3\\x-on-purpose";
const PATIENCE: Duration = Duration::from_secs(90);
/// What a job is known by on the host.
const JOB_MARK: &str = "a-job-that-has-used-its-secrets";

/// Uses both secrets, keeps what came back, writes what is planted in every spelling, and waits.
const PROGRAM: &str = r"
import base64, json, os, sys, time, urllib.parse, urllib.request
origin = sys.argv[1]
kept = [urllib.request.urlopen(origin + '/echo/added').read()]
for name in 'GIVEN', 'KEPT':
    headers = {'authorization': 'Bearer ' + os.environ[name]}
    kept.append(urllib.request.urlopen(urllib.request.Request(origin + '/echo', headers=headers)).read())
assert kept == [b'got Bearer [redacted] indeed'] * 3, kept
planted = os.environ.get('PLANTED')
if planted:
    escaped = ''.join(one if one.isalnum() else '%%%02X' % ord(one) for one in planted)
    forms = [planted, json.dumps(planted), urllib.parse.quote(planted, ''), escaped]
    for before in range(3):
        shifted = (' ' * before + planted).encode()
        forms += [base64.b64encode(shifted).decode(), base64.urlsafe_b64encode(shifted).decode()]
    for number, form in enumerate(forms):
        with open(f'planted{number}', 'w') as file:
            file.write(form)
    open('ready', 'w').close()
time.sleep(600)
";

struct SecrecyScene {
    service: Service,
    origin: Origin,
    /// What the service writes.
    state: TempDir,
    /// What it is given.
    given: TempDir,
}

impl SecrecyScene {
    fn start() -> Option<Self> {
        if !is_privileged() {
            return None;
        }
        let origin = Origin::start();
        let [state, given] = [(); 2].map(|()| TempDir::new().unwrap());
        let file = |name: &str, text: String| -> PathBuf {
            let path = given.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        file("kept.key", format!("{KEPT}\n"));
        let host = format!("localhost:{}", origin.tls);
        let secrets =
            file("secrets.toml", format!("[kept]\nfile = \"kept.key\"\nhosts = [\"{host}\"]\n"));
        fs::create_dir(given.path().join("work")).unwrap();
        let service = Setup::shell()
            .with_limits("-c unlimited")
            .env("RUST_LOG", "debug")
            .env("DEBUG", "1")
            .env("SECRETS_FILE", secrets)
            .env("EGRESS_CA_FILE", origin.certificate_file())
            .env("EGRESS_LOG_PATHS", "on")
            .env("JOBS_STORE_DIR", state.path().join("jobs"))
            .env("ENGINE_STORE_DIR", state.path().join("engine"))
            .env("WORKSPACE_BASE", state.path().join("base"))
            .env("JOBS_NETWORK_HOSTS", "localhost:*")
            .env("JOBS_HOSTS_ALLOW", "localhost")
            .env("ENGINE_NETWORK_HOSTS", "localhost:*")
            .env("ENGINE_HOSTS_ALLOW", "localhost")
            .start();
        Some(Self { service, origin, state, given })
    }

    fn ask(&self, method: &str, target: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = match method {
            "POST" => format!("idempotency-key: {}\r\n", target.replace('/', "-")),
            _ => String::new(),
        };
        try_ask(self.service.address, method, target, &headers, body.as_bytes()).unwrap()
    }

    #[track_caller]
    fn answer(&self, method: &str, target: &str, body: &Value) -> Value {
        let reply = self.ask(method, target, body);
        assert!(reply.status < 300, "{} {}", reply.status, String::from_utf8_lossy(&reply.body));
        reply.json()
    }

    /// Everything that the service tells.
    fn told(&self, targets: &[String]) -> Vec<u8> {
        targets.iter().flat_map(|target| self.ask("GET", target, &Value::Null).body).collect()
    }

    fn network(&self) -> Value {
        let host = format!("localhost:{}", self.origin.tls);
        let added =
            json!({"authorization": "Bearer {{secret.given}}", "x-other": "{{secret.kept}}"});
        json!({
            "rules": {&host: [
                {"path": "*/added", "headers": added},
                {"headers": {"x-planted": PLANTED}},
            ]},
            "secrets": {"given": {"value": GIVEN, "hosts": [&host]}, "kept": {}},
            "secret_env": {"GIVEN": "given", "KEPT": "kept"},
        })
    }

    /// A script that uses the secrets and lives on, as do two of its requests.
    fn script(&self, last: &str) -> String {
        let origin = format!("https://localhost:{}", self.origin.tls);
        format!(
            "curl -sSN {origin}/hold/added &
             curl -sSN -H \"authorization: Bearer $GIVEN\" {origin}/hold &
             exec python3 -c \"$0\" {origin} {last}"
        )
    }

    fn job(&self) -> String {
        let request = json!({
            "workspace": {"source": "local_path", "path": self.given.path().join("work")},
            "command": {
                "argv": ["sh", "-c", self.script(JOB_MARK), PROGRAM], "env": {"PATH": "/usr/bin:/bin"},
            },
            "policy": {
                "allowed_commands": ["sh"], "allow_shell": true, "allowed_env": ["PATH"],
                "network": self.network(),
            },
        });
        let posted = self.answer("POST", "/v1/jobs", &request);
        format!("/v1/jobs/{}", posted["job_id"].as_str().unwrap())
    }

    fn workspace(&self) -> String {
        let body = json!({
            "network": self.network(), "env": {"PLANTED": PLANTED}, "policy": {"persist": true},
        });
        let created = self.answer("POST", "/v1/workspaces", &body);
        let workspace = format!("/v1/workspaces/{}", created["workspace_id"].as_str().unwrap());
        let args = ["-c", &self.script("\"$PLANTED\""), PROGRAM];
        let body = json!({"cmd": "sh", "args": args});
        self.answer("POST", &format!("{workspace}/sessions"), &body);
        let wait = json!({"cmd": "sh", "args": ["-c", "until [ -e ready ]; do sleep 0.1; done"]});
        let waited = self.answer("POST", &format!("{workspace}/run"), &wait);
        assert_eq!(waited["exit_code"], 0, "{waited}");
        workspace
    }
}

/// Which spellings of what is planted are among those that were found.
fn planted(found: &[String]) -> BTreeSet<String> {
    let is_in = |spelling: &String| found.iter().any(|one| one.ends_with(spelling.as_str()));
    spellings(PLANTED).into_iter().filter(is_in).collect()
}

#[test]
fn a_secret_is_in_no_process_file_record_message_or_save_and_the_search_finds_what_is_planted() {
    let Some(scene) = SecrecyScene::start() else { return };
    let secrets = Search::new(&[GIVEN, KEPT]);
    let control = Search::new(&[PLANTED]);
    let workspace = scene.workspace();
    let job = scene.job();
    wait_until("the job", PATIENCE, || has_process(JOB_MARK));
    let service = scene.service.pid();
    // That the service itself has both shows that its memory can be searched.
    let own = secrets.in_memory(service);
    for secret in [GIVEN, KEPT] {
        assert!(own.iter().any(|found| found == secret), "{own:?}");
    }
    wait_until("the requests of the job", PATIENCE, || {
        let told = scene.answer("GET", &job, &Value::Null);
        told["egress"].as_array().is_none_or(|records| records.len() >= 5)
    });
    for (place, found) in secrets.in_processes(service) {
        assert_eq!(found, [""; 0], "{place}");
    }
    for (place, found) in control.in_processes(service) {
        assert_ne!(planted(&found), BTreeSet::new(), "{place}");
        if place == "files" {
            assert_eq!(planted(&found), spellings(PLANTED));
        }
    }
    let missing = utf8_percent_encode(PLANTED, NON_ALPHANUMERIC);
    scene.ask("GET", &format!("/v1/{missing}"), &Value::Null);
    scene.answer("POST", &format!("{workspace}/snapshot"), &json!({"persist": true}));
    scene.answer("POST", &format!("{workspace}/save"), &Value::Null);
    scene.answer("POST", &format!("{job}/cancel"), &Value::Null);
    let ended = || scene.answer("GET", &job, &Value::Null)["status"] != "running";
    wait_until("the end of the job", PATIENCE, ended);
    let targets =
        ["/metrics", "/status", "/v1/jobs", "/v1/workspaces", "/v1/snapshots", "/v1/engine"];
    let mut targets: Vec<String> = targets.map(str::to_owned).to_vec();
    targets.extend(["", "/events", "/artifacts"].map(|end| format!("{job}{end}")));
    targets.extend(
        ["", "/network", "/egress", "/sessions", "/processes"]
            .map(|end| format!("{workspace}{end}")),
    );
    let told = scene.told(&targets);
    assert_eq!(secrets.in_bytes(&told), [""; 0], "{}", String::from_utf8_lossy(&told));
    assert_ne!(planted(&control.in_bytes(&told)), BTreeSet::new());
    let parked = scene.answer("DELETE", &workspace, &Value::Null);
    assert_eq!(parked["persisted"], true, "{parked}");
    let written = [scene.state.path(), "/run/cofferdam".as_ref(), scene.service.workspace().path()];
    for directory in written {
        assert_eq!(secrets.in_files(directory), [""; 0], "{}", directory.display());
    }
    assert_ne!(planted(&control.in_files(scene.state.path())), BTreeSet::new());
    let log = scene.service.log.text();
    assert_eq!(secrets.in_bytes(log.as_bytes()), [""; 0], "{log}");
    assert_ne!(planted(&control.in_bytes(log.as_bytes())), BTreeSet::new(), "{log}");
}

#[test]
fn what_the_service_kept_of_a_secret_is_overwritten_after_its_workspace() {
    let Some(scene) = SecrecyScene::start() else { return };
    let given = Search::new(&[GIVEN]);
    let body = json!({"network": scene.network()});
    let created = scene.answer("POST", "/v1/workspaces", &body);
    let workspace = format!("/v1/workspaces/{}", created["workspace_id"].as_str().unwrap());
    let script = format!("curl -sS https://localhost:{}/echo/added", scene.origin.tls);
    let run = json!({"cmd": "sh", "args": ["-c", script]});
    let ran = scene.answer("POST", &format!("{workspace}/run"), &run);
    assert_eq!(ran["stdout"], "got Bearer [redacted] indeed", "{ran}");
    let before = given.in_memory(scene.service.pid());
    let of_needles = |found: &[String]| found.iter().any(|one| one.starts_with("given%2D"));
    assert!(of_needles(&before) && before.iter().any(|one| one == GIVEN), "{before:?}");
    scene.answer("DELETE", &workspace, &Value::Null);
    let after = given.in_memory(scene.service.pid());
    // These copies remain: the request in buffers of the HTTP library, the text that the JSON library decoded, and the
    // header in the buffer of the connection to the host.
    let json = serde_json::to_string(GIVEN).unwrap();
    let is_of_libraries = |one: &String| one == GIVEN || json.contains(one.as_str());
    assert!(after.iter().all(is_of_libraries), "{before:?}, {after:?}");
    let texts = |found: &[String]| found.iter().filter(|one| *one == GIVEN).count();
    assert!(texts(&after) < texts(&before), "{before:?}, {after:?}");
}

#[test]
fn a_core_of_the_service_has_no_memory_in_it() {
    let Some(scene) = SecrecyScene::start() else { return };
    let pid = scene.service.pid();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = core.split_whitespace().collect();
    // It was started without a limit.
    assert_eq!(words[4..6], ["0", "0"], "{core}");
    let filter = fs::read_to_string(format!("/proc/{pid}/coredump_filter")).unwrap();
    assert_eq!(filter.trim().trim_start_matches('0'), "", "{filter}");
}
