//! What a Case by HTTP may not use.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use super::scene::{CASE, ONE, Scene, archive_of_case, error, post};

const HEAD: &str = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";

#[test]
fn a_wrong_request_or_case_is_refused_by_the_field() {
    let Some(scene) = Scene::new() else { return };
    let good = scene.write_case("fix-add", CASE);
    let service = scene.start();
    let path = good["path"].as_str().unwrap();
    for (body, field) in [
        (json!({}), "path"),
        (json!({"path": "cases/fix-add"}), "path"),
        (json!({"path": path, "trials": 0}), "trials"),
        (json!({"path": path, "trials": 1_000_000}), "trials"),
        (json!({"path": path, "harnesses": ["other"]}), "harnesses"),
        (json!({"path": path, "models": ["other"]}), "models"),
        (json!({"path": path, "jobs": 2}), "jobs"),
    ] {
        let answer = post(&service, "/v1/cases", ONE, body.to_string());
        let fault = error(&answer, 422, "validation.invalid_request");
        assert_eq!(fault["details"]["field"], field, "{body}");
    }
    let wrong = "id: a\ntask: {}\nenvironment: {requirments: [x]}\nmatrix: {harnesses: [nop], models: [4.1]}\n";
    let errors = json!([
        ["task.prompt", "missing"],
        ["environment.requirments", "unknown_key"],
        ["matrix.models[0]", "wrong_type"],
    ]);
    let by_path = scene.write_case("wrong", wrong).to_string().into_bytes();
    for body in [by_path, archive_of_case("zip", "", wrong)] {
        let fault = error(&post(&service, "/v1/cases", ONE, body), 422, "validation.invalid_case");
        let found = fault["details"]["errors"].as_array().unwrap().iter();
        let found: Vec<Value> = found.map(|one| json!([one["path"], one["code"]])).collect();
        assert_eq!(json!(found), errors);
    }
    assert_eq!(scene.runs(), 0);
}

#[test]
fn a_path_outside_of_the_roots_is_denied_by_every_name() {
    let Some(scene) = Scene::new() else { return };
    let good = scene.write_case("fix-add", CASE);
    let good = good["path"].as_str().unwrap();
    let outside = scene.beside("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("case.yaml"), HEAD).unwrap();
    symlink(&outside, scene.root().join("link")).unwrap();
    let service = scene.start();
    for path in [
        outside.display().to_string(),
        scene.root().join("link").display().to_string(),
        format!("{good}/../../outside"),
        "/etc/passwd".to_owned(),
        "/nowhere".to_owned(),
        scene.store().display().to_string(),
    ] {
        let body = json!({ "path": path }).to_string();
        let answer = post(&service, "/v1/cases", ONE, body);
        error(&answer, 403, "policy.path_denied");
        assert!(!answer.body.contains("passwd"), "{answer:?}");
    }
    let missing = json!({ "path": scene.root().join("none") }).to_string();
    let fault = error(&post(&service, "/v1/cases", ONE, missing), 422, "validation.invalid_case");
    assert_eq!(fault["details"]["errors"][0]["code"], "not_found");
}

#[test]
fn what_a_posted_case_may_not_use_is_denied_and_listed() {
    let Some(scene) = Scene::new() else { return };
    let secrets = scene.beside("secrets.toml");
    fs::write(scene.beside("key"), "sk-0123456789abcdef").unwrap();
    let table = "[model]\nfile = \"key\"\nhosts = [\"api.example\"]\n\
                 [theirs]\nfile = \"key\"\nhosts = [\"api.example\"]\ntokens = [\"two\"]\n";
    fs::write(&secrets, table).unwrap();
    for file in ["key", "secrets.toml"] {
        let path = scene.beside(file);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let service = scene
        .setup()
        .env("SECRETS_FILE", &secrets)
        .env("CASES_EGRESS_ALLOW", "api.example,evil.example,127.0.0.0/8")
        .env("CASES_HARNESS_ENV", "REGION")
        .start();
    let openai = |keys: &str, egress: &str| {
        format!("harnesses: {{h: {{kind: openai, {keys}, egress: [{egress}]}}}}\n")
    };
    let key_of_us =
        openai("api_key_env: AUTH_TOKEN, base_url: 'https://evil.example/v1'", "evil.example");
    let secret = |name: &str, host: &str| {
        openai(&format!("secret: {name}, base_url: 'https://{host}/v1'"), host)
    };
    let variable = |name: &str| {
        format!(
            "harnesses: {{h: {{kind: command, argv: [a], network: {{rules: {{api.example: [{{headers: {{x: '{{{{secret.k}}}}'}}}}]}}, \
             secrets: {{k: {{value: {{env: {name}}}, hosts: [api.example]}}}}}}}}}}\n"
        )
    };
    for (yaml, path, code) in [
        (key_of_us, "harnesses.h.api_key_env", "policy.secret_denied"),
        (secret("model", "evil.example"), "harnesses.h", "policy.secret_denied"),
        (secret("theirs", "api.example"), "harnesses.h", "policy.secret_denied"),
        (secret("unknown", "api.example"), "harnesses.h", "policy.secret_denied"),
        (variable("AUTH_TOKENS_FILE"), "harnesses.h.network.secrets.k.value", "policy.env_denied"),
        (
            "container: {image: i, env_passthrough: [PATH]}\n".to_owned(),
            "container.env_passthrough",
            "policy.env_denied",
        ),
        ("source: {path: /usr/share}\n".to_owned(), "source.path", "policy.path_denied"),
        (
            "source: {repo: /srv/git/a, commit: main}\n".to_owned(),
            "source.repo",
            "policy.path_denied",
        ),
        (
            "environment: {egress: ['127.0.0.1:80']}\n".to_owned(),
            "environment.egress[0]",
            "policy.network_denied",
        ),
        (
            "environment: {egress: ['pypi.example']}\n".to_owned(),
            "environment.egress[0]",
            "policy.network_denied",
        ),
        (
            "harnesses: {h: {kind: command, argv: [a], egress: [localhost]}}\n".to_owned(),
            "harnesses.h.egress[0]",
            "policy.network_denied",
        ),
        (
            openai("secret: model, base_url: 'http://127.0.0.1:9/v1'", "'127.0.0.1:9'"),
            "harnesses.h.base_url",
            "policy.network_denied",
        ),
    ] {
        let body = archive_of_case("tar.gz", "", &format!("{HEAD}{yaml}"));
        let answer = post(&service, "/v1/cases", ONE, body);
        let fault: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(answer.status, 403, "{yaml}: {answer:?}");
        let denials = fault["details"]["denials"].as_array().unwrap();
        assert_eq!(fault["code"], denials[0]["code"], "{yaml}");
        let is_it = |one: &&Value| one["path"] == path && one["code"] == code;
        assert!(denials.iter().any(|one| is_it(&one)), "{yaml}: {answer:?}");
        assert!(!answer.body.contains("sk-0123456789"), "{answer:?}");
    }
    let external = format!("{HEAD}source: {{repo: 'ext::sh -c id', commit: main}}\n");
    let answer = post(&service, "/v1/cases", ONE, archive_of_case("zip", "", &external));
    let fault = error(&answer, 422, "validation.invalid_case");
    assert_eq!(fault["details"]["errors"][0]["path"], "source.repo");
    let local = r#"{"path":"/a","executor":"local"}"#;
    error(&post(&service, "/v1/cases", ONE, local), 403, "policy.executor_denied");
    let local = archive_of_case("zip", "", HEAD);
    let answer = post(&service, "/v1/cases?executor=local", ONE, local);
    error(&answer, 403, "policy.executor_denied");
    assert_eq!(scene.runs(), 0, "what was denied is left");
    for yaml in [secret("model", "api.example"), variable("REGION")] {
        let body = archive_of_case("tar.gz", "", &format!("{HEAD}{yaml}"));
        let answer = post(&service, "/v1/cases", ONE, body);
        assert_eq!(answer.status, 202, "{yaml}: {answer:?}");
    }
}

#[test]
fn everything_that_is_denied_is_listed_at_once() {
    let Some(scene) = Scene::new() else { return };
    let service = scene.start();
    let yaml = format!(
        "{HEAD}source: {{path: /usr}}\nenvironment: {{egress: [localhost]}}\n\
         container: {{image: i, env_passthrough: [PATH]}}\n\
         harnesses: {{h: {{kind: openai, api_key_env: AUTH_TOKEN, base_url: 'https://e.example/v1'}}}}\n"
    );
    let answer = post(&service, "/v1/cases", ONE, archive_of_case("zip", "", &yaml));
    assert_eq!(answer.status, 403, "{answer:?}");
    for path in [
        "source.path",
        "environment.egress[0]",
        "container.env_passthrough",
        "harnesses.h.api_key_env",
    ] {
        assert!(answer.body.contains(&format!("\"path\":\"{path}\"")), "{path}: {answer:?}");
    }
}
