//! The secrets of `SECRETS_FILE` on the command line: they reach the hosts that they are for, and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::scene::{HIDDEN_TEST, RunEnd, Scene};
use crate::harness::endpoint::{Endpoint, answer, asks, says};

const KEY: &str = "sk-of-the-service-0123456789";
const MEND: &str = r#"{"command":"sed -i 's/a - b/a + b/' add.py; env; cat /proc/*/environ"}"#;

/// A file of secrets: one for the host of `endpoint`, one for tokens alone, one for another host.
fn secrets(place: &TempDir, endpoint: &Endpoint, mode: u32) -> PathBuf {
    let write = |name: &str, text: &str, mode: u32| {
        let path = place.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    write("model.key", KEY, 0o600);
    let host = endpoint.host();
    let text = format!(
        "[model]\nfile = \"model.key\"\nhosts = [\"{host}\"]\n\
         [tokens]\nfile = \"model.key\"\nhosts = [\"{host}\"]\ntokens = [\"ci\"]\n\
         [elsewhere]\nfile = \"model.key\"\nhosts = [\"a.example\"]\n"
    );
    write("secrets.toml", &text, mode)
}

fn with(scene: &Scene, subcommand: &str, arguments: &[&str], file: &Path) -> RunEnd {
    let output = scene.command(subcommand, arguments).env("SECRETS_FILE", file).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains(KEY));
    RunEnd::of(&output)
}

fn chat(endpoint: &Endpoint, names: &[&str]) -> String {
    let url = endpoint.base_url();
    let harness =
        |name: &&str| format!("  {name}: {{kind: openai, base_url: '{url}', secret: {name}}}\n");
    let harnesses: String = names.iter().map(harness).collect();
    let matrix = names.join(", ");
    format!("harnesses:\n{harnesses}matrix: {{harnesses: [{matrix}], models: [m]}}\n{HIDDEN_TEST}")
}

#[test]
fn the_key_of_a_model_arrives_there_and_is_in_no_file_of_the_run() {
    let endpoint = Endpoint::new([asks(&[("bash", MEND)]), says("done")]);
    let Some(scene) = Scene::new(&chat(&endpoint, &["model"])) else { return };
    let place = tempfile::tempdir().unwrap();
    let file = secrets(&place, &endpoint, 0o600);
    let end = with(&scene, "run", &["--keep"], &file);
    assert_eq!((end.code, end.cells()), (Some(0), [1, 0, 0, 0]), "{}", end.stderr);
    let came = endpoint.came();
    assert_eq!(came.len(), 2);
    for request in &came {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert!(!request.body.to_string().contains(KEY), "{}", request.body);
    }
    scene.assert_no_file_has(KEY);
}

#[test]
fn a_secret_that_is_missing_or_for_others_is_named_and_a_resumed_run_may_have_it() {
    let endpoint = Endpoint::new([asks(&[("bash", MEND)]), says("done")]);
    let names = ["gone", "tokens", "elsewhere"];
    let Some(scene) = Scene::new(&chat(&endpoint, &names)) else { return };
    let place = tempfile::tempdir().unwrap();
    let file = secrets(&place, &endpoint, 0o600);
    let end = with(&scene, "run", &[], &file);
    assert_eq!((end.code, end.cells()), (Some(4), [0, 3, 0, 0]), "{}", end.stderr);
    for (name, words) in
        [("gone", "is not available"), ("tokens", "is not available"), ("elsewhere", "is not for")]
    {
        let error = &scene.result(&end, name, 1)["error"];
        assert_eq!(error["code"], "harness.failed", "{error}");
        let wanted = format!("policy.secret_denied: the secret '{name}' {words}");
        assert!(error["message"].as_str().unwrap().starts_with(&wanted), "{error}");
    }
    assert!(endpoint.came().is_empty());

    scene.write(
        "case.yaml",
        &scene.yaml().replace("[gone, tokens, elsewhere]", "[model]").replace("gone", "model"),
    );
    let end = scene.run(&["--run-id", "later"]);
    assert_eq!(end.cells(), [0, 1, 0, 0], "{}", end.stderr);
    let end = with(&scene, "resume", &[], &file);
    assert_eq!((end.code, end.cells()), (Some(0), [1, 0, 0, 0]), "{}", end.stderr);
    scene.assert_no_file_has(KEY);
}

#[test]
fn a_rule_writes_a_secret_of_the_service_for_an_agent_and_for_the_cell_of_one_command() {
    let endpoint = Endpoint::new([answer(200, "", &json!("one")), answer(200, "", &json!("two"))]);
    let (host, url) = (endpoint.host(), endpoint.base_url());
    let rules = format!(
        "{{rules: {{'{host}': [{{plain: true, headers: {{x-key: '{{{{secret.model}}}}'}}}}]}}}}"
    );
    let ask = format!("import urllib.request as r; print(r.urlopen('{url}').read())");
    let argv = json!(["python3", "-c", ask]);
    let blocks = format!(
        "harnesses: {{mine: {{kind: command, argv: {argv}, network: {rules}}}}}
matrix: {{harnesses: [mine], models: [m]}}\n{HIDDEN_TEST}"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    let place = tempfile::tempdir().unwrap();
    let file = secrets(&place, &endpoint, 0o600);
    let end = with(&scene, "run", &[], &file);
    assert_eq!(end.cells(), [1, 0, 0, 0], "{}", end.stderr);
    let output = fs::read_to_string(scene.cell(&end, "mine", 1).join("output.txt")).unwrap();
    assert_eq!(output, "b'\"one\"'\n");

    let command = format!("python3 -c \"{ask}\" > said");
    let environment = json!({"kind": "command", "commands": [command], "egress": [host]});
    scene.write("case.yaml", &format!("{}environment: {environment}\n", scene.yaml()));
    let network = place.path().join("network.yaml");
    fs::write(&network, &rules).unwrap();
    let mut exec = scene.exec(&["cat", "said"]);
    exec.env("SECRETS_FILE", &file).env("CASES_PROVISION_NETWORK", &network);
    let output = exec.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b'\"two\"'\n", "{said}");
    let keys: Vec<_> =
        endpoint.came().iter().map(|came| came.header("x-key").map(str::to_owned)).collect();
    assert_eq!(keys, [Some(KEY.to_owned()), Some(KEY.to_owned())]);
    scene.assert_no_file_has(KEY);
}

#[test]
fn a_file_that_everybody_can_read_is_refused_before_anything_runs() {
    let endpoint = Endpoint::new([]);
    let Some(scene) = Scene::new(&chat(&endpoint, &["model"])) else { return };
    let place = tempfile::tempdir().unwrap();
    let file = secrets(&place, &endpoint, 0o644);
    for mut command in [scene.command("run", &[]), scene.exec(&["true"])] {
        let output = command.env("SECRETS_FILE", &file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("SECRETS_FILE") && said.contains("everybody"), "{said}");
    }
}
