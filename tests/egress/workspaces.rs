//! Workspaces with a `network`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use cofferdam_test_server::exchange::{Reply, try_ask};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::origin::Origin;
use crate::support::is_privileged;

/// How long something may take that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service whose workspaces may reach the origin.
pub struct WorkspaceScene {
    pub service: Service,
    pub origin: Origin,
    pub directory: TempDir,
}

/// Starts one; none where workspaces are impossible, which `REQUIRE_PRIVILEGED=1` forbids.
pub fn scene() -> Option<WorkspaceScene> {
    scene_with(&[])
}

/// As [`scene`], with these further variables.
pub fn scene_with(variables: &[(&str, &str)]) -> Option<WorkspaceScene> {
    if !is_privileged() {
        return None;
    }
    let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
    let setup = setup(&directory).env("EGRESS_CA_FILE", origin.certificate_file());
    let set = |setup: Setup, (name, value): &(&str, &str)| setup.env(name, value);
    let service = variables.iter().fold(setup, set).start();
    Some(WorkspaceScene { service, origin, directory })
}

fn start(directory: &TempDir) -> Service {
    setup(directory).start()
}

/// A service that also has the secret `key` for `host`.
pub fn start_with_secrets(directory: &TempDir, value: &str, host: &str) -> Service {
    let file = directory.path().join("secrets.toml");
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("key", format!("{value}\n"));
    write("secrets.toml", format!("[key]\nfile = \"key\"\nhosts = [\"{host}\"]\n"));
    setup(directory)
        .env("ENGINE_STORE_DIR", directory.path().join("other"))
        .env("SECRETS_FILE", file)
        .start()
}

fn setup(directory: &TempDir) -> Setup {
    Setup::shell()
        .env("JOBS", "off")
        .env("ENGINE_STORE_DIR", directory.path())
        .env("ENGINE_NETWORK_HOSTS", "localhost:*")
        .env("ENGINE_HOSTS_ALLOW", "localhost")
}

impl WorkspaceScene {
    pub fn ask(&self, method: &str, target: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        try_ask(self.service.address, method, target, "", body.as_bytes()).unwrap()
    }

    /// Creates a workspace that may reach the origin, with these other keys. Returns its path.
    #[track_caller]
    pub fn create(&self, body: &Value) -> String {
        let mut body = body.clone();
        body["network"] = json!({"allow": self.origin.entries()});
        self.created(&self.ask("POST", "/v1/workspaces", &body))
    }

    #[track_caller]
    pub fn created(&self, reply: &Reply) -> String {
        assert_eq!(reply.status, 201, "{}", reply.json());
        format!("/v1/workspaces/{}", reply.json()["workspace_id"].as_str().unwrap())
    }

    /// Parks a workspace and starts the service anew.
    #[track_caller]
    pub fn park_and_restart(&mut self, workspace: &str) {
        let parked = self.ask("DELETE", workspace, &Value::Null);
        assert_eq!((parked.status, &parked.json()["persisted"]), (200, &json!(true)));
        self.service.kill();
        self.service = start(&self.directory);
    }

    #[track_caller]
    pub fn sh(&self, workspace: &str, script: &str) -> Value {
        let body = json!({"cmd": "sh", "args": ["-c", script]});
        let reply = self.ask("POST", &format!("{workspace}/run"), &body);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    }

    /// The records of a workspace.
    #[track_caller]
    fn records(&self, workspace: &str, query: &str) -> Value {
        let reply = self.ask("GET", &format!("{workspace}/egress{query}"), &Value::Null);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    }

    fn get_page(&self) -> String {
        format!("curl -s -m 20 http://localhost:{}/page", self.origin.plain)
    }
}

/// What the proxy was asked for: the decision, and the step.
fn told(records: &Value) -> Vec<(String, Value)> {
    let record =
        |record: &Value| (record["decision"].as_str().unwrap().to_owned(), record["step"].clone());
    records.as_array().unwrap().iter().map(record).collect()
}

#[test]
fn each_program_of_a_workspace_reaches_its_hosts_and_has_its_own_records() {
    let Some(scene) = scene() else { return };
    let workspace = scene.create(&json!({}));
    let view = scene.ask("GET", &workspace, &Value::Null).json();
    assert_eq!(view["network"], json!({"allow": scene.origin.entries()}));
    // Those after the second are prepared before their request.
    for _ in 0..4 {
        let result = scene.sh(&workspace, &scene.get_page());
        assert_eq!(result["stdout"], "hello /page", "{result}");
        let step = result["run_dir"].clone();
        assert_eq!(told(&result["egress"]), [("allowed".to_owned(), step)], "{result}");
    }
    let denied =
        scene.sh(&workspace, "curl -s -m 20 -o /dev/null -w '%{http_code}' http://other.test/");
    assert_eq!(
        (&denied["stdout"], &denied["egress"][0]["reason"]),
        (&json!("403"), &json!("not_listed"))
    );
    let silent = scene.sh(&workspace, "true");
    assert_eq!(silent["egress"], json!([]));
    let all = scene.records(&workspace, "");
    assert_eq!((told(&all["egress"]).len(), &all["next_cursor"]), (5, &Value::Null));
    let first = scene.records(&workspace, "?limit=3");
    let rest = scene.records(&workspace, "?limit=3&cursor=3");
    assert_eq!((&first["next_cursor"], &rest["next_cursor"]), (&json!("3"), &Value::Null));
    let joined = [&first["egress"], &rest["egress"]].map(|page| page.as_array().unwrap().clone());
    assert_eq!(json!(joined.concat()), all["egress"]);
    scene
        .ask("GET", &format!("{workspace}/egress?limit=0"), &Value::Null)
        .assert_error(422, "validation.invalid_request");
    let network = scene.ask("GET", &format!("{workspace}/network"), &Value::Null);
    assert_eq!((network.status, network.json()), (200, view["network"].clone()));
}

#[test]
fn programs_that_share_a_sandbox_share_one_socket_for_its_life() {
    let Some(scene) = scene() else { return };
    let workspace = scene.create(&json!({"sandbox": "workspace"}));
    let page = scene.get_page();
    let left = format!("(until [ -e go ]; do sleep 0.05; done; {page} >left) & {page}");
    let first = scene.sh(&workspace, &left);
    assert_eq!((&first["stdout"], told(&first["egress"]).len()), (&json!("hello /page"), 1));
    let second = scene.sh(&workspace, "touch go; until [ -s left ]; do sleep 0.05; done; cat left");
    assert_eq!(
        (&second["stdout"], told(&second["egress"]).len()),
        (&json!("hello /page"), 1),
        "{second}"
    );
    let restarted = scene.ask("POST", &format!("{workspace}/restart"), &Value::Null);
    assert_eq!(restarted.status, 200, "{}", restarted.json());
    let third = scene.sh(&workspace, &page);
    assert_eq!((&third["stdout"], told(&third["egress"]).len()), (&json!("hello /page"), 1));
    assert_eq!(told(&scene.records(&workspace, "")["egress"]).len(), 3);
}

#[test]
fn sessions_and_executions_have_their_records_too() {
    let Some(scene) = scene() else { return };
    let workspace = scene.create(&json!({}));
    let body = json!({"cmd": "sh", "args": ["-c", scene.get_page()]});
    let session = scene.ask("POST", &format!("{workspace}/sessions"), &body).json();
    let result = format!("{workspace}/sessions/{}/result", session["session_id"].as_str().unwrap());
    let ended = || scene.ask("GET", &result, &Value::Null);
    wait_until("the end of the session", PATIENCE, || ended().status == 200);
    assert_eq!(told(&ended().json()["egress"]).len(), 1, "{}", ended().json());
    let id = workspace.rsplit('/').next().unwrap();
    let url = format!("http://localhost:{}/code", scene.origin.plain);
    let code = format!(
        "import urllib.request\nprint(urllib.request.urlopen('{url}', timeout=20).read().decode())"
    );
    for stateful in [false, true] {
        let blocks = json!([{"language": "python", "code": code}]);
        let body = json!({"code_blocks": blocks, "workspace_id": id, "stateful": stateful});
        let answer = scene.ask("POST", "/v1/execute", &body).json();
        assert_eq!(answer["output"], "hello /code\n", "{answer}");
        assert_eq!(told(&answer["egress"]).len(), 1, "{answer}");
    }
}

#[test]
fn a_network_beyond_the_list_of_the_service_is_refused_and_a_fork_has_none() {
    let Some(scene) = scene() else { return };
    for allow in ["example.com", "127.0.0.1:80", "*.localhost:80"] {
        let reply = scene.ask("POST", "/v1/workspaces", &json!({"network": {"allow": [allow]}}));
        reply.assert_error(403, "policy.network_denied");
    }
    let workspace = scene.create(&json!({}));
    let fork = scene.created(&scene.ask("POST", &format!("{workspace}/fork"), &json!({})));
    let result = scene.sh(&fork, &format!("env | grep -ic proxy; {}; echo $?", scene.get_page()));
    assert_eq!((&result["stdout"], &result["egress"]), (&json!("0\n7\n"), &json!([])), "{result}");
    let network = scene.ask("GET", &format!("{fork}/network"), &Value::Null);
    assert_eq!((network.status, network.json()), (200, Value::Null));
    let body = json!({"network": {"allow": [format!("localhost:{}", scene.origin.plain)]}});
    let fork = scene.created(&scene.ask("POST", &format!("{workspace}/fork"), &body));
    assert_eq!(scene.sh(&fork, &scene.get_page())["stdout"], "hello /page");
}

#[test]
fn a_parked_workspace_keeps_its_network() {
    let Some(mut scene) = scene() else { return };
    let workspace = scene.create(&json!({"policy": {"persist": true}}));
    let network = format!("{workspace}/network");
    let before = scene.ask("GET", &network, &Value::Null).json();
    scene.park_and_restart(&workspace);
    assert_eq!(scene.ask("GET", &network, &Value::Null).json(), before);
    let view = scene.ask("GET", &workspace, &Value::Null).json();
    assert_eq!((&view["status"], &view["network"]), (&json!("parked"), &before));
    assert_eq!(scene.sh(&workspace, &scene.get_page())["stdout"], "hello /page");
}

#[test]
fn maven_and_gradle_find_the_proxy_in_home_and_files_of_the_user_stay() {
    let Some(scene) = scene() else { return };
    let script = "cat ~/.m2/settings.xml ~/.gradle/gradle.properties; printenv JAVA_TOOL_OPTIONS; \
                  echo own > ~/.m2/settings.xml; rm ~/.gradle/gradle.properties";
    for body in [json!({}), json!({"sandbox": "workspace"})] {
        let workspace = scene.create(&body);
        let first = scene.sh(&workspace, script);
        let shown = first["stdout"].as_str().unwrap();
        assert!(shown.contains("<host>127.0.0.1</host><port>3128</port>"), "{first}");
        assert!(shown.contains("systemProp.https.proxyPort=3128\n"), "{first}");
        assert!(shown.contains("-Duser.home=/tmp/home "), "{first}");
        let second = scene.sh(&workspace, "cat ~/.m2/settings.xml; ls ~/.gradle");
        assert_eq!(second["stdout"], "own\ngradle.properties\n", "{second}");
    }
    let reply = scene.ask("POST", "/v1/workspaces", &json!({}));
    let without = scene.created(&reply);
    assert_eq!(scene.sh(&without, "ls -A ~")["stdout"], "");
}
