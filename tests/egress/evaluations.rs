//! Evaluations whose agents, and whose own steps, use secrets that no sandbox has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use cofferdam_test_server::exchange::{Reply, try_ask};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::origin::{ORIGIN_SECRET, Origin};
use crate::support::is_privileged;

const GIVEN_SECRET: &str = "sk-given-with-the-request";
const CI: &str = "authorization: Bearer token-of-ci-0123456789\r\n";
const OTHER: &str = "authorization: Bearer token-of-other-0123456789\r\n";
/// How long an evaluation may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A service whose secret `key` opens what the origin serves below `/private/`, for the token `ci` alone.
struct EvaluationScene {
    service: Service,
    origin: Origin,
    directory: TempDir,
}

impl EvaluationScene {
    fn start(more: impl FnOnce(&Origin) -> Vec<(&'static str, String)>) -> Option<Self> {
        if !is_privileged() {
            return None;
        }
        let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, text: String| {
            fs::write(path(name), text).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
        };
        let tls = origin.tls;
        write("key", format!("{ORIGIN_SECRET}\n"));
        write(
            "secrets.toml",
            format!("[key]\nfile = \"key\"\nhosts = [\"localhost:{tls}\"]\ntokens = [\"ci\"]\n"),
        );
        write("tokens", "ci token-of-ci-0123456789\nother token-of-other-0123456789\n".to_owned());
        let setup = Setup::shell()
            .env("JOBS", "off")
            .env("ENGINE", "off")
            .arg("--store-dir")
            .arg(path("store"))
            .env("WORKSPACE_BASE", path("sessions"))
            .env("SECRETS_FILE", path("secrets.toml"))
            .env("AUTH_TOKENS_FILE", path("tokens"))
            .env("EGRESS_CA_FILE", origin.certificate_file())
            .env("EVAL_AGENT_HOSTS", "localhost:*,127.0.0.2:*")
            .env("EVAL_HOSTS_ALLOW", "localhost");
        let set = |setup: Setup, (name, value): (&str, String)| setup.env(name, value);
        let service = more(&origin).into_iter().fold(setup, set).start();
        Some(Self { service, origin, directory })
    }

    fn ask(&self, headers: &str, method: &str, target: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        try_ask(self.service.address, method, target, headers, body.as_bytes()).unwrap()
    }

    /// Serves a task of these files; returns its URL.
    fn task(&self, name: &str, files: &[(&str, &str)]) -> String {
        let root = self.directory.path().join(name);
        for (path, text) in [("prompt.md", "Do it.\n")].iter().chain(files) {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let archive = self.origin.served().join(format!("{name}.tar"));
        let made =
            Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(&root).arg(".").status();
        assert!(made.unwrap().success());
        format!("http://localhost:{}/files/{name}.tar", self.origin.plain)
    }

    /// Runs an evaluation to its result.
    #[track_caller]
    fn evaluated(&self, headers: &str, request: &Value) -> Value {
        let posted = self.ask(headers, "POST", "/evaluate", request);
        assert_eq!(posted.status, 202, "{}", posted.json());
        let target = format!("/evaluate/{}", posted.json()["eval_id"].as_str().unwrap());
        let result = || self.ask(headers, "GET", &target, &Value::Null).json();
        wait_until("the end of the evaluation", PATIENCE, || {
            !["pending", "running"].contains(&result()["status"].as_str().unwrap())
        });
        result()
    }

    /// The files of the service that hold `value`, a line each.
    fn holding(&self, value: &str) -> String {
        let places = ["store", "sessions"].map(|name| self.directory.path().join(name));
        let found = Command::new("grep").args(["-rlF", value]).args(places).output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    }
}

/// The records of a step: the host and port, the decision, and the names of secrets.
fn records_of(result: &Value, step: &str) -> Vec<(String, Value, Value)> {
    let records = result["egress"].as_array().unwrap().iter();
    let of_step = records.filter(|record| record["step"] == step);
    of_step
        .map(|record| {
            let place = format!("{}:{}", record["host"].as_str().unwrap(), record["port"]);
            (place, record["decision"].clone(), record["secrets"].clone())
        })
        .collect()
}

#[test]
fn an_agent_alone_uses_secrets_through_rules() {
    let Some(scene) = EvaluationScene::start(|_| Vec::new()) else { return };
    let (tls, plain) = (scene.origin.tls, scene.origin.plain);
    fs::write(scene.origin.served().join("answer"), "the answer\n").unwrap();
    // No step but the agent's has a placeholder, a proxy of the agent's, or what programs trust it by.
    let bare = "test -z \"$API_KEY$GIVEN$SSL_CERT_FILE\" && ! env | grep -q cofferdam_secret_ && \
                ! curl -fsS -m 5 https://localhost:PORT/private/answer";
    let bare = bare.replace("PORT", &tls.to_string());
    let yaml = json!({"files": "files", "install": [bare]}).to_string();
    let test = format!(
        "{bare}\ngrep -x 'the answer' answer\ngrep -x 'got Bearer \\[redacted\\] indeed' given\n"
    );
    let url = scene.task(
        "task",
        &[("workspace.yaml", &yaml), ("files/a", "a\n"), ("tests/fail_to_pass_1.sh", &test)],
    );
    let agent = format!(
        "set -e
         curl -fsS -m 20 -H \"authorization: Bearer $API_KEY\" https://localhost:{tls}/private/answer > answer
         ! curl -fsS -m 20 https://localhost:{tls}/private/answer 2> /dev/null || exit 9
         curl -fsS -m 20 http://localhost:{plain}/echo > given
         curl -s -m 20 -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.2:1/
         echo $API_KEY | cut -c 1-17; echo $GIVEN | cut -c 1-17; env; cat /proc/self/environ"
    );
    let network = json!({
        "allow": ["127.0.0.2:1"],
        "rules": {
            format!("localhost:{tls}"): [{"methods": ["GET"], "path": "/private/*"}],
            format!("localhost:{plain}"):
                [{"plain": true, "headers": {"authorization": "Bearer {{secret.given}}"}}],
        },
        "secrets": {"given": {"value": GIVEN_SECRET, "hosts": [format!("localhost:{plain}")]}},
        "secret_env": {"API_KEY": "key", "GIVEN": "given"},
    });
    let request = json!({
        "agent_code": agent, "agent_language": "bash", "task_url": url, "agent_network": network,
    });
    let result = scene.evaluated(CI, &request);
    assert_eq!(result["verdict"], "resolved", "{result:#}");
    let output = result["agent_output"].as_str().unwrap();
    assert!(output.starts_with("403\ncofferdam_secret_\ncofferdam_secret_\n"), "{output}");
    let (host, allowed) = (|port: u16| format!("localhost:{port}"), json!("allowed"));
    let expected = [
        (host(tls), allowed.clone(), json!(["key"])),
        (host(tls), allowed.clone(), json!([])),
        (host(plain), allowed, json!(["given"])),
        ("127.0.0.2:1".to_owned(), json!("denied"), json!([])),
    ];
    assert_eq!(records_of(&result, "running_agent"), expected, "{result:#}");
    let private = result["egress"].as_array().unwrap().iter();
    let private = private.filter(|record| record["reason"] == "private_address");
    assert_eq!(private.count(), 1, "EVAL_HOSTS_ALLOW names localhost alone: {result:#}");
    assert_eq!(records_of(&result, "running_tests"), [], "{result:#}");
    let id = result["eval_id"].as_str().unwrap();
    let events = scene.ask(CI, "GET", &format!("/evaluate/{id}/events"), &Value::Null);
    for value in [ORIGIN_SECRET, GIVEN_SECRET] {
        assert!(!result.to_string().contains(value), "{result:#}");
        let events = String::from_utf8_lossy(&events.body);
        assert!(!events.contains(value), "{events}");
        assert_eq!(scene.holding(value), "");
        assert!(!scene.service.log.text().contains(value));
    }
}

#[test]
fn a_network_of_an_agent_that_is_wrong_or_too_wide_is_refused() {
    let Some(scene) = EvaluationScene::start(|_| Vec::new()) else { return };
    let url = format!("http://localhost:{}/files/none.tar", scene.origin.plain);
    let evaluation = |network: &Value| json!({"agent_code": "x", "task_url": url, "agent_network": network, "agent_env": {"TAKEN": "1"}});
    let batch = |network: &Value| {
        let agent = json!({
            "name": "a", "agent_code": "x", "agent_network": network, "agent_env": {"TAKEN": "1"}
        });
        json!({"tasks": [{"task_url": url}], "agents": [agent]})
    };
    let tls = format!("localhost:{}", scene.origin.tls);
    let with_secret = |name: &str| json!({"rules": {&tls: [{"headers": {"x-a": format!("{{{{secret.{name}}}}}")}}]}});
    let given = json!({"secrets": {"k": {"value": GIVEN_SECRET, "hosts": ["localhost"]}}});
    let invalid = "evaluate.invalid_request";
    for (token, network, status, code, field) in [
        (CI, json!({"allow": ["example.com"]}), 403, "policy.network_denied", "allow"),
        (CI, json!({"rules": {"example.com": []}}), 403, "policy.network_denied", "rules"),
        (OTHER, with_secret("key"), 403, "policy.secret_denied", "secrets"),
        (CI, with_secret("nobody"), 403, "policy.secret_denied", "secrets"),
        (CI, json!({"secret_env": {"A": "nobody"}}), 403, "policy.secret_denied", "secrets"),
        (
            CI,
            json!({"rules": {"localhost": [{"other": 1}]}}),
            400,
            invalid,
            "rules.localhost[0].other",
        ),
        (CI, json!({"allow": [7]}), 400, invalid, "allow[0]"),
        (CI, json!({"rules": {"localhost": vec![json!({}); 33]}}), 400, invalid, "rules.localhost"),
        (
            CI,
            json!({"rules": {"localhost": [{"headers": {"x-a": "{{secret.key}}"}}]}}),
            400,
            invalid,
            "rules.localhost[0].headers.x-a",
        ),
        (CI, json!({"secrets": {"a-b": {}}}), 400, invalid, "secrets.a-b"),
        (CI, json!({"secret_env": {"TAKEN": "key"}}), 400, invalid, "secret_env.TAKEN"),
        (CI, json!({"secret_env": {"TASK_PROMPT": "key"}}), 400, invalid, "secret_env.TASK_PROMPT"),
        (CI, json!({"secret_env": {"LD_PRELOAD": "key"}}), 400, invalid, "secret_env.LD_PRELOAD"),
    ] {
        for (target, body, prefix) in [
            ("/evaluate", evaluation(&network), ""),
            ("/evaluations/batch", batch(&network), "agents[0]."),
        ] {
            let error = scene.ask(token, "POST", target, &body);
            let error = error.assert_error(status, code);
            let field = format!("{prefix}agent_network.{field}");
            assert_eq!(error["details"]["field"], field, "{target} {network} {error}");
        }
    }
    // Items of a batch wait on disk: their secrets are the service's.
    let error = scene.ask(CI, "POST", "/evaluations/batch", &batch(&given));
    let error = error.assert_error(400, invalid);
    assert_eq!(error["details"]["field"], "agents[0].agent_network.secrets.k.value", "{error}");
    assert!(!error.to_string().contains(GIVEN_SECRET), "{error}");
}

/// A repository that git finds as plain files, with the file `name`.
fn serve_repository(scene: &EvaluationScene, name: &str) {
    let work = scene.directory.path().join("repository");
    fs::create_dir(&work).unwrap();
    let bare = scene.origin.served().join(name);
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let done = Command::new("git").args(identity).args(words).current_dir(&work).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "-q", "--initial-branch=main"]);
    fs::write(work.join("private.txt"), "of the repository\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    git(&["--git-dir", bare.to_str().unwrap(), "update-server-info"]);
}

#[test]
fn git_and_install_use_secrets_of_the_service_through_rules() {
    let networks = |origin: &Origin| {
        let rule = json!({"methods": ["GET"], "path": "/private/*", "headers": {
            "authorization": "Bearer {{secret.key}}"
        }});
        let host = format!("localhost:{}", origin.tls);
        let network = json!({"rules": {&host: [rule]}}).to_string();
        let agents = json!({"rules": {&host: [{}]}, "secret_env": {"DEFAULT_KEY": "key"}});
        vec![
            ("EVAL_CLONE_NETWORK", network.clone()),
            ("EVAL_INSTALL_NETWORK", network),
            ("EVAL_INSTALL_HOSTS", "localhost:*".to_owned()),
            ("EVAL_AGENT_NETWORK", agents.to_string()),
        ]
    };
    let Some(scene) = EvaluationScene::start(networks) else { return };
    let tls = scene.origin.tls;
    serve_repository(&scene, "r.git");
    fs::write(scene.origin.served().join("package"), "of the index\n").unwrap();
    let install = format!(
        "curl -fsS -m 20 https://localhost:{tls}/private/package > package && ! env | grep -q cofferdam_secret_"
    );
    let other = format!("! curl -fsS -m 20 https://localhost:{tls}/files/package");
    let yaml = json!({
        "repo": format!("https://localhost:{tls}/private/r.git"), "base_commit": "main",
        "install": [install, other],
    });
    let test = "grep -x 'of the repository' private.txt && grep -x 'of the index' package && test -f done\n";
    let url = scene
        .task("task", &[("workspace.yaml", &yaml.to_string()), ("tests/fail_to_pass_1.sh", test)]);
    let agent = format!(
        "env | grep -c cofferdam_secret_; curl -s -m 20 -o /dev/null -w '%{{http_code}}' \
         https://localhost:{tls}/private/package; touch done"
    );
    let request = json!({"agent_code": agent, "agent_language": "bash", "task_url": url, "agent_network": {
        "rules": {format!("localhost:{tls}"): [{}]},
    }});
    let result = scene.evaluated(CI, &request);
    assert_eq!(result["verdict"], "resolved", "{result:#}");
    // The agent has neither: it asks without the secret.
    assert_eq!(result["agent_output"], "0\n401", "{result:#}");
    let host = format!("localhost:{tls}");
    let cloned = records_of(&result, "cloning_repo");
    assert!(!cloned.is_empty(), "{result:#}");
    for record in &cloned {
        assert_eq!(*record, (host.clone(), json!("allowed"), json!(["key"])), "{result:#}");
    }
    let installed = records_of(&result, "installing_deps");
    let expected =
        [(host.clone(), json!("allowed"), json!(["key"])), (host, json!("denied"), json!([]))];
    assert_eq!(installed, expected, "{result:#}");
    assert!(!result.to_string().contains(ORIGIN_SECRET), "{result:#}");
    assert_eq!(scene.holding(ORIGIN_SECRET), "");
    // An agent whose request says nothing has the network of the service.
    let agent = format!(
        "curl -fsS -m 20 -H \"authorization: Bearer $DEFAULT_KEY\" https://localhost:{tls}/private/package; \
         touch done"
    );
    let by_default = json!({"agent_code": agent, "agent_language": "bash", "task_url": url});
    let result = scene.evaluated(CI, &by_default);
    assert_eq!(result["agent_output"], "of the index\n", "{result:#}");
    assert_eq!(result["verdict"], "resolved", "{result:#}");
    // An item of a batch, which waits on disk, has the service's secrets too.
    let agent = format!(
        "curl -fsS -m 20 -H \"authorization: Bearer $BATCH_KEY\" https://localhost:{tls}/private/package && \
         touch done"
    );
    let agent = json!({"name": "a", "agent_code": agent, "agent_language": "bash", "agent_network": {
        "rules": {format!("localhost:{tls}"): [{}]}, "secret_env": {"BATCH_KEY": "key"},
    }});
    let batch = json!({"tasks": [{"task_url": url}], "agents": [agent]});
    let posted = scene.ask(CI, "POST", "/evaluations/batch", &batch);
    assert_eq!(posted.status, 202, "{}", posted.json());
    let target = format!("/evaluations/batch/{}", posted.json()["batch_id"].as_str().unwrap());
    let state = || scene.ask(CI, "GET", &target, &Value::Null).json();
    wait_until("the end of the batch", PATIENCE, || state()["status"] == "done");
    assert_eq!(state()["verdicts"]["resolved"], 1, "{:#}", state());
    // The secret is not for the other token, so that its evaluations find no repository.
    let result = scene.evaluated(OTHER, &request);
    assert_eq!(result["verdict"], "infra_error", "{result:#}");
    let denied = records_of(&result, "cloning_repo");
    assert!(denied.iter().all(|(_, decision, _)| decision == "denied"), "{result:#}");
}
