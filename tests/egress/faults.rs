//! Network objects that are wrong, at every door that takes one: each is refused with the path of its field.

use serde_json::{Map, Value, json};

use crate::{jobs, workspaces};

/// A network with one rule for a host.
fn rule(rule: &Value) -> Value {
    json!({"rules": {"a.test": [rule]}})
}

/// A network with one secret of the request, changed.
fn secret(change: &Value) -> Value {
    let mut secret = json!({"value": "sk-12345678", "hosts": ["a.test"]});
    for (key, value) in change.as_object().unwrap() {
        secret[key] = value.clone();
    }
    json!({"secrets": {"k": secret}})
}

fn with_header(name: &str, value: &str) -> Value {
    rule(&json!({"headers": {name: value}}))
}

/// `count` keys, each with `value`.
fn many(count: usize, value: &Value) -> Value {
    let entry = |number: usize| (format!("k{number}"), value.clone());
    Value::Object((0..count).map(entry).collect::<Map<String, Value>>())
}

fn keys_and_types() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"other": 1}), "other"),
        (json!({"allow": "a.test"}), "allow"),
        (json!({"allow": [7]}), "allow[0]"),
        (json!({"allow": ["a.test", "a b"]}), "allow[1]"),
        (json!({"rules": []}), "rules"),
        (json!({"rules": {"a.test": {}}}), "rules.a.test"),
        (json!({"rules": {"a.test": [7]}}), "rules.a.test[0]"),
        (json!({"rules": {"a b": []}}), "rules.a b"),
        (rule(&json!({"other": 1})), "rules.a.test[0].other"),
        (rule(&json!({"plain": "yes"})), "rules.a.test[0].plain"),
        (rule(&json!({"action": "maybe"})), "rules.a.test[0].action"),
        (rule(&json!({"methods": "GET"})), "rules.a.test[0].methods"),
        (rule(&json!({"methods": ["GET", 7]})), "rules.a.test[0].methods[1]"),
        (rule(&json!({"methods": ["G T"]})), "rules.a.test[0].methods[0]"),
        (rule(&json!({"path": 7})), "rules.a.test[0].path"),
        (rule(&json!({"path": "a"})), "rules.a.test[0].path"),
        (rule(&json!({"headers": []})), "rules.a.test[0].headers"),
        (rule(&json!({"headers": {"x-a": 7}})), "rules.a.test[0].headers.x-a"),
        (rule(&json!({"remove_headers": "x-a"})), "rules.a.test[0].remove_headers"),
        (rule(&json!({"query": ["a"]})), "rules.a.test[0].query"),
        (rule(&json!({"query": {"a": 7}})), "rules.a.test[0].query.a"),
        (rule(&json!({"requests_max": "1"})), "rules.a.test[0].requests_max"),
        (rule(&json!({"request_bytes_max": -1})), "rules.a.test[0].request_bytes_max"),
        (rule(&json!({"response_bytes_max": 1.5})), "rules.a.test[0].response_bytes_max"),
        (rule(&json!({"wait_ms": true})), "rules.a.test[0].wait_ms"),
        (rule(&json!({"wait_ms": 0})), "rules.a.test[0].wait_ms"),
        (rule(&json!({"websocket": 1})), "rules.a.test[0].websocket"),
        (json!({"secrets": []}), "secrets"),
        (json!({"secrets": {"k": "sk-12345678"}}), "secrets.k"),
        (secret(&json!({"other": 1})), "secrets.k.other"),
        (secret(&json!({"value": 12_345_678})), "secrets.k.value"),
        (secret(&json!({"value": null})), "secrets.k.value"),
        (secret(&json!({"hosts": "a.test"})), "secrets.k.hosts"),
        (secret(&json!({"hosts": ["a.test", "a b"]})), "secrets.k.hosts[1]"),
        (secret(&json!({"in": "authorization"})), "secrets.k.in"),
        (secret(&json!({"in": ["authorization", "nowhere"]})), "secrets.k.in[1]"),
        (secret(&json!({"in": ["header:host"]})), "secrets.k.in[0]"),
        (json!({"secret_env": []}), "secret_env"),
        (json!({"secret_env": {"A": 7}}), "secret_env.A"),
        (json!({"secret_env": {"A": "not a name"}}), "secret_env.A"),
        (json!({"secret_env": {"9": "k"}}), "secret_env.9"),
        (json!(["a.test"]), ""),
    ]
}

fn counts_and_ports() -> Vec<(Value, &'static str)> {
    let rules = |hosts: usize| {
        let key = |number: usize| (format!("h{number}.test"), json!([]));
        Value::Object((0..hosts).map(key).collect::<Map<String, Value>>())
    };
    let rules_of = |key: &str, rules: Value| json!({"rules": {key: rules}});
    let given = json!({"value": "sk-12345678", "hosts": ["a.test"]});
    vec![
        (json!({"allow": vec!["a.test"; 65]}), "allow"),
        (json!({"rules": rules(65)}), "rules"),
        (json!({"rules": {"a.test": vec![json!({}); 33]}}), "rules.a.test"),
        (json!({"secrets": many(17, &given)}), "secrets"),
        (json!({"secrets": many(16, &given), "secret_env": {"A": "other"}}), "secrets"),
        (secret(&json!({"hosts": vec!["a.test"; 65]})), "secrets.k.hosts"),
        (rules_of("a.test", json!([{}, {"plain": true}])), "rules.a.test[1].plain"),
        (rules_of("a.test:81", json!([{"plain": true}, {}])), "rules.a.test:81[1].plain"),
        (rules_of("a.test:80", json!([{"plain": false}])), "rules.a.test:80[0].plain"),
        (rules_of("a.test:*", json!([{"plain": true}, {}])), "rules.a.test:*[1].plain"),
        (rules_of("10.0.0.0/8", json!([{}])), "rules.10.0.0.0/8[0].plain"),
        (rules_of("10.0.0.0/8:81", json!([{}])), "rules.10.0.0.0/8:81[0].plain"),
        (json!({"rules": {"a.test": [], "a.test:443": []}}), "rules.a.test:443"),
    ]
}

fn headers_and_templates() -> Vec<(Value, &'static str)> {
    let removed = |name: &str| rule(&json!({"remove_headers": ["x-a", name]}));
    vec![
        (with_header("Host", "a"), "rules.a.test[0].headers.Host"),
        (with_header("content-length", "1"), "rules.a.test[0].headers.content-length"),
        (with_header("Transfer-Encoding", "x"), "rules.a.test[0].headers.Transfer-Encoding"),
        (with_header("connection", "x"), "rules.a.test[0].headers.connection"),
        (with_header("upgrade", "x"), "rules.a.test[0].headers.upgrade"),
        (with_header("Proxy-Authorization", "x"), "rules.a.test[0].headers.Proxy-Authorization"),
        (removed("Host"), "rules.a.test[0].remove_headers[1]"),
        (removed("x a"), "rules.a.test[0].remove_headers[1]"),
        (with_header("x a", "x"), "rules.a.test[0].headers.x a"),
        (with_header("x-a", "a\nb"), "rules.a.test[0].headers.x-a"),
        (with_header("x-a", "a\u{7f}b"), "rules.a.test[0].headers.x-a"),
        (with_header("x-a", "{{other}}"), "rules.a.test[0].headers.x-a"),
        (with_header("x-a", "{{env.HOME}}"), "rules.a.test[0].headers.x-a"),
        (with_header("x-a", "{{secret.}}"), "rules.a.test[0].headers.x-a"),
        (with_header("x-a", "{{secret.a-b}}"), "rules.a.test[0].headers.x-a"),
        (with_header("x-a", "{{secret.k"), "rules.a.test[0].headers.x-a"),
        (rule(&json!({"query": {"a": "{{ secret.k }}"}})), "rules.a.test[0].query.a"),
        (rule(&json!({"query": {"a": "b\r\n"}})), "rules.a.test[0].query.a"),
    ]
}

fn secrets() -> Vec<(Value, &'static str)> {
    let named =
        |name: &str| json!({"secrets": {name: {"value": "sk-12345678", "hosts": ["a.test"]}}});
    let used = |key: &str, rule: Value| {
        let mut network = secret(&json!({}));
        network["rules"] = json!({key: [{}, rule]});
        network
    };
    let header = json!({"headers": {"x-a": "{{secret.k}}"}});
    vec![
        (secret(&json!({"value": "sk-1234"})), "secrets.k.value"),
        (secret(&json!({"value": "sk-1234\n5678"})), "secrets.k.value"),
        (secret(&json!({"value": "x".repeat(65_537)})), "secrets.k.value"),
        (secret(&json!({"hosts": []})), "secrets.k.hosts"),
        (json!({"secrets": {"k": {"value": "sk-12345678"}}}), "secrets.k.hosts"),
        (json!({"secrets": {"k": {"hosts": ["a.test"]}}}), "secrets.k.hosts"),
        (named("a-b"), "secrets.a-b"),
        (named("9a"), "secrets.9a"),
        (named(""), "secrets."),
        (used("b.test", header.clone()), "rules.b.test[1].headers.x-a"),
        (used("a.test:444", header.clone()), "rules.a.test:444[1].headers.x-a"),
        (used("*.a.test", header), "rules.*.a.test[1].headers.x-a"),
        (used("b.test", json!({"query": {"q": "{{secret.k}}"}})), "rules.b.test[1].query.q"),
    ]
}

fn all() -> Vec<(Value, &'static str)> {
    let mut long_name = json!({"secrets": {}});
    long_name["secrets"]["n".repeat(65)] = json!({"value": "sk-12345678", "hosts": ["a.test"]});
    let long_path: &'static str = Box::leak(format!("secrets.{}", "n".repeat(65)).into_boxed_str());
    let named = vec![(long_name, long_path)];
    [keys_and_types(), counts_and_ports(), headers_and_templates(), secrets(), named].concat()
}

/// The path of `field` in the object at `object`. An empty `field` means the object itself.
fn below(object: &str, field: &str) -> String {
    match (object, field) {
        ("", "") => ".".to_owned(),
        (object, "") => object.to_owned(),
        ("", field) => field.to_owned(),
        (object, field) => format!("{object}.{field}"),
    }
}

#[test]
fn a_wrong_network_of_a_workspace_is_a_422_with_the_path_of_its_field() {
    let Some(scene) = workspaces::scene() else { return };
    let workspace = scene.create(&json!({"env": {"TAKEN": "1"}}));
    let before = scene.ask("GET", &format!("{workspace}/network"), &Value::Null).json();
    for (network, field) in all() {
        for (method, target, object) in [
            ("POST", "/v1/workspaces".to_owned(), "network"),
            ("POST", format!("{workspace}/fork"), "network"),
            ("PUT", format!("{workspace}/network"), ""),
        ] {
            let body = if object.is_empty() { network.clone() } else { json!({object: network}) };
            let reply = scene.ask(method, &target, &body);
            let error = reply.assert_error(422, "validation.invalid_request");
            assert_eq!(
                error["details"]["path"],
                below(object, field),
                "{method} {network} {error}"
            );
            assert!(!error.to_string().contains("sk-1234"), "{error}");
        }
    }
    let taken = json!({"secret_env": {"TAKEN": "k"}});
    for (method, target, object, body) in [
        (
            "POST",
            "/v1/workspaces".to_owned(),
            "network.",
            json!({"env": {"TAKEN": "1"}, "network": taken}),
        ),
        ("POST", format!("{workspace}/fork"), "network.", json!({"network": taken})),
        ("PUT", format!("{workspace}/network"), "", taken.clone()),
    ] {
        let error = scene.ask(method, &target, &body);
        let error = error.assert_error(422, "validation.invalid_request");
        assert_eq!(
            error["details"]["path"],
            format!("{object}secret_env.TAKEN"),
            "{target} {error}"
        );
    }
    let after = scene.ask("GET", &format!("{workspace}/network"), &Value::Null).json();
    assert_eq!(after, before);
}

#[test]
fn a_program_is_not_given_another_value_for_a_variable_that_holds_a_placeholder() {
    let Some(scene) = workspaces::scene() else { return };
    let network = json!({
        "secrets": {"k": {"value": "sk-12345678", "hosts": ["localhost:1"]}},
        "secret_env": {"TAKEN": "k"},
    });
    let made = scene.ask("POST", "/v1/workspaces", &json!({"network": network}));
    let workspace = scene.created(&made);
    let env = json!({"TAKEN": "1"});
    for (path, mut body) in [("run", json!({"cmd": "true"})), ("sessions", json!({"cmd": "true"}))]
    {
        body["env"] = env.clone();
        let reply = scene.ask("POST", &format!("{workspace}/{path}"), &body);
        let error = reply.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], "env.TAKEN", "{path} {error}");
    }
    let body = json!({"cmd": "sh", "args": ["-c", "echo $TAKEN"], "env": {"OTHER": "1"}});
    let ran = scene.ask("POST", &format!("{workspace}/run"), &body).json();
    assert!(ran["stdout"].as_str().unwrap().starts_with("cofferdam_secret_"), "{ran}");
}

#[test]
fn a_wrong_network_of_a_job_is_a_422_with_the_path_of_its_field() {
    let Some(scene) = jobs::scene(&[]) else { return };
    for (network, field) in all() {
        let reply = scene.post(&scene.request("true", &network));
        let error = reply.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], below("policy.network", field), "{network} {error}");
        assert!(!error.to_string().contains("sk-1234"), "{error}");
    }
    let taken = json!({"secret_env": {"PATH": "k"}});
    let error = scene.post(&scene.request("true", &taken));
    let error = error.assert_error(422, "validation.invalid_request");
    assert_eq!(error["details"]["path"], "policy.network.secret_env.PATH", "{error}");
}
