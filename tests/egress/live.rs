//! Workspaces whose network changes while they live.

use std::process::Command;

use serde_json::{Value, json};

use crate::workspaces::{WorkspaceScene, scene, start_with_secrets};

const LIVE_SECRET: &str = "sk-live-value-of-a-secret";

/// A network in which the header `x-api-key` of plain requests to the origin is judged.
fn ruled(scene: &WorkspaceScene, secret: &Value) -> Value {
    let host = format!("localhost:{}", scene.origin.plain);
    json!({
        "rules": {&host: [
            {"plain": true, "path": "/echo", "headers": {"authorization": "Bearer {{secret.key}}"}},
            {"plain": true, "path": "/page"},
        ]},
        "secrets": {"key": secret},
        "secret_env": {"API_KEY": "key"},
    })
}

fn given(scene: &WorkspaceScene) -> Value {
    json!({"value": LIVE_SECRET, "hosts": [format!("localhost:{}", scene.origin.plain)]})
}

fn code_of(scene: &WorkspaceScene, workspace: &str, path: &str) -> String {
    let url = format!("http://localhost:{}{path}", scene.origin.plain);
    let script = format!("curl -sS -m 20 -o /dev/null -w '%{{http_code}}' {url}");
    scene.sh(workspace, &script)["stdout"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_put_replaces_the_network_at_once_and_nothing_shows_a_value() {
    let Some(scene) = scene() else { return };
    let workspace = scene.create(&json!({}));
    let network = ruled(&scene, &given(&scene));
    let target = format!("{workspace}/network");
    let put = scene.ask("PUT", &target, &network);
    assert_eq!(put.status, 200, "{}", put.json());
    let mut shown = network.clone();
    shown["secrets"]["key"]["value"] = Value::Null;
    shown["allow"] = json!([]);
    assert_eq!(put.json(), shown);
    assert_eq!(scene.ask("GET", &target, &Value::Null).json(), shown);
    let view = scene.ask("GET", &workspace, &Value::Null).json();
    assert_eq!(view["network"], shown, "{view}");
    let url = format!("http://localhost:{}/echo", scene.origin.plain);
    let result = scene.sh(&workspace, &format!("curl -sS -m 20 {url}; echo; echo $API_KEY"));
    let stdout = result["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("got Bearer [redacted] indeed\ncofferdam_secret_"), "{result}");
    assert_eq!(result["egress"][0]["secrets"], json!(["key"]), "{result}");
    assert!(!result.to_string().contains(LIVE_SECRET), "{result}");
    // The placeholder of a name that stays is the same.
    let before = stdout.lines().last().unwrap().to_owned();
    assert_eq!(scene.ask("PUT", &target, &network).status, 200);
    let result = scene.sh(&workspace, "printf %s $API_KEY");
    assert_eq!(result["stdout"], before, "{result}");
    assert_eq!(code_of(&scene, &workspace, "/page"), "200");
    assert_eq!(code_of(&scene, &workspace, "/other"), "403");
    let empty = json!({"rules": {format!("localhost:{}", scene.origin.plain): []}});
    assert_eq!(scene.ask("PUT", &target, &empty).status, 200);
    assert_eq!(code_of(&scene, &workspace, "/page"), "403");
}

#[test]
fn a_parked_workspace_has_no_value_of_a_request_until_the_next_put() {
    let Some(mut scene) = scene() else { return };
    let network = ruled(&scene, &given(&scene));
    let body = json!({"network": network, "policy": {"persist": true}});
    let workspace = scene.created(&scene.ask("POST", "/v1/workspaces", &body));
    let target = format!("{workspace}/network");
    let placeholder = scene.sh(&workspace, "printf %s $API_KEY")["stdout"].clone();
    assert_eq!(code_of(&scene, &workspace, "/echo"), "200");
    scene.park_and_restart(&workspace);
    let stored =
        Command::new("grep").args(["-rl", LIVE_SECRET]).arg(scene.directory.path()).output();
    assert_eq!(String::from_utf8(stored.unwrap().stdout).unwrap(), "");
    let shown = scene.ask("GET", &target, &Value::Null).json();
    assert_eq!(shown["secrets"]["key"]["value"], Value::Null, "{shown}");
    let url = format!("http://localhost:{}/echo", scene.origin.plain);
    let result = scene.sh(&workspace, &format!("curl -sS -m 20 {url}"));
    assert!(result["stdout"].as_str().unwrap().contains("egress.secret_missing"), "{result}");
    assert_eq!(code_of(&scene, &workspace, "/page"), "200");
    assert_eq!(scene.sh(&workspace, "printf %s $API_KEY")["stdout"], placeholder);
    assert_eq!(scene.ask("PUT", &target, &network).status, 200);
    assert_eq!(code_of(&scene, &workspace, "/echo"), "200");
}

#[test]
fn a_put_is_checked_and_changes_nothing_if_it_is_wrong() {
    let Some(scene) = scene() else { return };
    let workspace = scene.create(&json!({}));
    let target = format!("{workspace}/network");
    let before = scene.ask("GET", &target, &Value::Null).json();
    for (body, status, code, path) in [
        (json!({"other": 1}), 422, "validation.invalid_request", "other"),
        (json!({"rules": {"example.com": []}}), 403, "policy.network_denied", "rules"),
    ] {
        let error = scene.ask("PUT", &target, &body).assert_error(status, code);
        assert_eq!(error["details"]["path"], path, "{error}");
    }
    let error = scene.ask("PUT", &target, &json!({"secrets": {"nobody": {}}}));
    let error = error.assert_error(403, "policy.secret_denied");
    assert_eq!(error["details"]["name"], "nobody", "{error}");
    assert_eq!(scene.ask("GET", &target, &Value::Null).json(), before);
}

#[test]
fn a_secret_of_the_service_is_read_from_its_file() {
    let Some(mut scene) = scene() else { return };
    let port = scene.origin.plain;
    scene.service = start_with_secrets(&scene.directory, LIVE_SECRET, &format!("localhost:{port}"));
    let body = json!({"network": ruled(&scene, &json!({}))});
    let workspace = scene.created(&scene.ask("POST", "/v1/workspaces", &body));
    let result = scene.sh(&workspace, &format!("curl -sS -m 20 http://localhost:{port}/echo"));
    assert_eq!(result["stdout"], "got Bearer [redacted] indeed", "{result}");
}
