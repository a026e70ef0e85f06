use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use cofferdam_core::{NetworkObject, SecretValue};
use serde_json::{Value, json};

use super::check::WithheldValues;
use super::decision::{RuleDecision, RuleRefusal, RuledHead};
use super::fault::NetworkDenial;
use super::network::{HostRoute, NetworkRules, RuledName};
use crate::egress::hosts::allow_list::AllowList;
use crate::egress::hosts::literal::AskedHost;
use crate::egress::secret::{Placeholders, ServiceSecret, ServiceSecrets};

const VALUE: &str = "sk-/value one";

fn object(json: Value) -> NetworkObject {
    serde_json::from_value(json).unwrap()
}

/// The secret `own` of everybody and `ci` of one token, both for `a.test`.
fn service() -> ServiceSecrets {
    let secret = |tokens: Option<&str>| ServiceSecret {
        value: Arc::new(SecretValue::new("service-value".to_owned()).unwrap()),
        hosts: AllowList::parse(&["a.test".to_owned()]).unwrap(),
        tokens: tokens.map(|token| vec![token.to_owned()]),
    };
    let secrets = ServiceSecrets::default();
    secrets.replace(BTreeMap::from([
        ("own".to_owned(), secret(None)),
        ("ci".to_owned(), secret(Some("ci"))),
    ]));
    secrets
}

fn resolve(json: Value, token: &str) -> Result<NetworkRules, NetworkDenial> {
    let (object, withheld) = (object(json), WithheldValues::Refused);
    NetworkRules::resolve(&object, &service(), token, &Placeholders::new_for(&object), withheld)
}

fn asked(host: &str) -> AskedHost {
    AskedHost::parse(host).unwrap()
}

fn decide(
    rules: &NetworkRules,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
) -> RuleDecision {
    let pairs = headers.iter().map(|(name, value)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    });
    let headers: HeaderMap = pairs.collect();
    let is_websocket = headers.contains_key("x-websocket");
    let head = RuledHead { method, target, headers: &headers, is_websocket };
    rules.decide(&asked("a.test"), 443, &head)
}

#[test]
fn a_wrong_field_is_named_and_no_value_is_shown() {
    let secret = json!({"value": "do-not-show", "hosts": ["a.test"]});
    let many = |count: usize, value: Value| -> Value {
        (0..count)
            .map(|index| (format!("h{index}.test"), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let rule = |rule: Value| json!({"rules": {"a.test": [{}, rule]}});
    for (network, path) in [
        (json!({"allow": ["a b"]}), "allow[0]"),
        (json!({"allow": vec!["a.test"; 65]}), "allow"),
        (json!({"rules": many(65, json!([]))}), "rules"),
        (json!({"rules": {"a b": []}}), "rules.a b"),
        (json!({"rules": {"a.test": vec![json!({}); 33]}}), "rules.a.test"),
        (json!({"rules": {"a.test": [], "A.test:443": []}}), "rules.a.test"),
        (json!({"rules": {"a.test:*": [{}]}}), "rules.a.test:*[0].plain"),
        (json!({"rules": {"10.0.0.0/8": [{"plain": true}, {}]}}), "rules.10.0.0.0/8[1].plain"),
        (json!({"rules": {"a.test:8080": [{"plain": true}, {}]}}), "rules.a.test:8080[1].plain"),
        (json!({"rules": {"a.test:80": [{"plain": false}]}}), "rules.a.test:80[0].plain"),
        (rule(json!({"path": "v1"})), "rules.a.test[1].path"),
        (rule(json!({"methods": ["GE T"]})), "rules.a.test[1].methods[0]"),
        (rule(json!({"headers": {"Host": "x"}})), "rules.a.test[1].headers.Host"),
        (rule(json!({"headers": {"proxy-x": "x"}})), "rules.a.test[1].headers.proxy-x"),
        (rule(json!({"headers": {"x-a": "x\ny"}})), "rules.a.test[1].headers.x-a"),
        (rule(json!({"headers": {"x-a": "{{env.X}}"}})), "rules.a.test[1].headers.x-a"),
        (rule(json!({"headers": {"x-a": "1", "X-A": "2"}})), "rules.a.test[1].headers.x-a"),
        (rule(json!({"remove_headers": ["Upgrade"]})), "rules.a.test[1].remove_headers[0]"),
        (rule(json!({"query": {"k": "{{x}}"}})), "rules.a.test[1].query.k"),
        (rule(json!({"wait_ms": 0})), "rules.a.test[1].wait_ms"),
        (json!({"secrets": {"a-b": secret.clone()}}), "secrets.a-b"),
        (json!({"secrets": {"a": {"value": "do-not-show"}}}), "secrets.a.hosts"),
        (json!({"secrets": {"a": {"hosts": ["a.test"]}}}), "secrets.a.hosts"),
        (json!({"secrets": {"a": {"value": null, "hosts": ["a.test"]}}}), "secrets.a.value"),
        (
            json!({"secrets": {"a": {"value": "do-not-show", "hosts": ["a.test"], "in": ["body"]}}}),
            "secrets.a.in[0]",
        ),
        (
            json!({"secrets": (0..17).map(|index| (format!("s{index}"), secret.clone())).collect::<serde_json::Map<_, _>>()}),
            "secrets",
        ),
        (json!({"secret_env": {"A-B": "own"}}), "secret_env.A-B"),
        (json!({"secret_env": {"A": "o-n"}}), "secret_env.A"),
        (
            json!({"rules": {"b.test": [{"headers": {"x-a": "{{secret.a}}"}}]}, "secrets": {"a": secret}}),
            "rules.b.test[0].headers.x-a",
        ),
        (
            json!({"rules": {"b.test": [{"query": {"k": "{{secret.own}}"}}]}}),
            "rules.b.test[0].query.k",
        ),
    ] {
        let denial = resolve(network.clone(), "").expect_err(&network.to_string());
        let NetworkDenial::Invalid(fault) = &denial else { panic!("{network}: {denial}") };
        assert_eq!(fault.path, path, "{network}: {fault}");
        assert!(!denial.to_string().contains("do-not-show"), "{denial}");
    }
}

#[test]
fn a_secret_that_is_unknown_or_of_another_token_is_denied_by_its_name() {
    let network = |name: &str| json!({"secrets": {name: {}}});
    for (network, token, denied) in [
        (network("own"), "", None),
        (network("ci"), "ci", None),
        (network("ci"), "cd", Some("ci")),
        (network("none"), "ci", Some("none")),
        (json!({"secret_env": {"KEY": "ci"}}), "", Some("ci")),
        (json!({"rules": {"a.test": [{"headers": {"x-a": "{{secret.ci}}"}}]}}), "", Some("ci")),
    ] {
        let named = match resolve(network.clone(), token) {
            Err(NetworkDenial::SecretDenied { name }) => Some(name),
            other => {
                assert!(other.is_ok(), "{network}");
                None
            }
        };
        assert_eq!(named.as_deref(), denied, "{network}");
    }
}

#[test]
fn the_most_specific_key_alone_decides() {
    let plain = json!([{"plain": true}]);
    let rules = resolve(
        json!({
            "allow": ["a.test", "c.test", "10.1.1.1:80"],
            "rules": {
                "a.test": [], "a.test:*": plain, "*.b.test:*": plain, "*.c.b.test": [],
                "10.0.0.0/8:*": [{"plain": false}], "10.1.0.0/16:*": plain, "10.1.1.1:443": [],
                "http.test:80": [{}],
            },
        }),
        "",
    )
    .unwrap();
    let ruled = |is_plain| HostRoute::Ruled { is_plain };
    for (host, port, route) in [
        ("a.test", 443, ruled(false)),
        ("a.test", 8443, ruled(true)),
        ("x.b.test", 443, ruled(true)),
        ("x.c.b.test", 443, ruled(false)),
        ("x.c.b.test", 444, ruled(true)),
        ("b.test", 443, HostRoute::Unlisted),
        ("10.2.0.1", 443, ruled(false)),
        ("10.1.0.1", 443, ruled(true)),
        ("10.1.1.1", 443, ruled(false)),
        ("10.1.1.1", 80, ruled(true)),
        ("http.test", 80, ruled(true)),
        ("c.test", 443, HostRoute::Listed),
        ("d.test", 443, HostRoute::Unlisted),
    ] {
        assert_eq!(rules.route(&asked(host), port), route, "{host}:{port}");
    }
    assert!(rules.tls_names().contains(&RuledName::Below("c.b.test".to_owned())));
    assert!(!rules.tls_names().contains(&RuledName::Name("http.test".to_owned())));
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rules = resolve(
        json!({"rules": {"a.test": [
            {"action": "deny", "path": "/admin/*"},
            {"methods": ["post"], "path": "/v1/*", "requests_max": 2},
            {"methods": ["GET"], "path": "/v1/models"},
            {"methods": ["GET"], "path": "/socket", "websocket": true},
        ]}}),
        "",
    )
    .unwrap();
    let verdict = |method: &str, target: &str, headers: &[(&str, &str)]| {
        let decision = decide(&rules, method, target, headers);
        (decision.rule, decision.plan.map(|plan| plan.target.to_string()))
    };
    for (method, target, rule, refusal) in [
        ("GET", "/admin/x", Some(0), RuleRefusal::RuleDenied),
        ("GET", "//ADMIN;a=b//x", Some(0), RuleRefusal::RuleDenied),
        ("GET", "/v1/../%61dmin/x?q", Some(0), RuleRefusal::RuleDenied),
        ("GET", "/v1/x", None, RuleRefusal::NoRule),
        ("get", "/v1/models", None, RuleRefusal::NoRule),
        ("GET", "/V1/models", None, RuleRefusal::NoRule),
        ("GET", "//v1/models", None, RuleRefusal::NoRule),
        ("GET", "/a%2fb", None, RuleRefusal::BadRequest),
        ("TRACE", "/v1/models", None, RuleRefusal::BadRequest),
    ] {
        assert_eq!(verdict(method, target, &[]), (rule, Err(refusal)), "{method} {target}");
    }
    let websocket = [("x-websocket", "1")];
    assert_eq!(verdict("GET", "/v1/models", &websocket), (Some(2), Err(RuleRefusal::WebSocket)));
    assert_eq!(verdict("GET", "/socket", &websocket), (Some(3), Ok("/socket".to_owned())));
    assert_eq!(
        verdict("GET", "/v1/./models?a=%2f", &[]),
        (Some(2), Ok("/v1/models?a=%2f".to_owned()))
    );
    for _ in 0..2 {
        assert_eq!(verdict("POST", "/v1/x", &[]), (Some(1), Ok("/v1/x".to_owned())));
    }
    assert_eq!(verdict("POST", "/v1/x", &[]), (Some(1), Err(RuleRefusal::RequestsMax)));
}

#[test]
fn a_rule_sets_and_removes_and_answers_are_asked_for_in_the_clear() {
    let rules = resolve(
        json!({
            "rules": {"a.test": [{
                "path": "/keyed",
                "headers": {"Authorization": "Bearer {{secret.key}}"},
                "remove_headers": ["x-gone"],
                "query": {"key": "{{secret.key}}", "v": "1"},
                "request_bytes_max": 7, "wait_ms": 9,
            }, {}]},
            "secrets": {"key": {"value": VALUE, "hosts": ["a.test"]}},
        }),
        "",
    )
    .unwrap();
    let headers =
        [("authorization", "theirs"), ("x-gone", "1"), ("x-kept", "2"), ("range", "bytes=0-1")];
    let plan = decide(&rules, "GET", "/keyed?a=b&key=x&k%65y=y&b", &headers).plan.unwrap();
    assert_eq!(plan.target, "/keyed?a=b&b&key=sk-%2Fvalue%20one&v=1");
    let sent: BTreeMap<&str, &[u8]> =
        plan.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let bearer = format!("Bearer {VALUE}");
    let expected: BTreeMap<&str, &[u8]> = BTreeMap::from([
        ("authorization", bearer.as_bytes()),
        ("x-kept", &b"2"[..]),
        ("accept-encoding", b"identity"),
    ]);
    assert_eq!(sent, expected);
    assert!(!format!("{:?}", plan.headers).contains("sk-"), "{:?}", plan.headers);
    assert_eq!((plan.secrets, plan.search.is_some()), (vec!["key".to_owned()], true));
    assert_eq!((plan.limits.request_bytes_max, plan.limits.wait.as_millis()), (Some(7), 9));
    let plan = decide(&rules, "GET", "/other", &[("range", "bytes=0-1")]).plan.unwrap();
    assert!(plan.headers.contains_key("range") && plan.secrets.is_empty() && plan.search.is_none());
}

#[test]
fn a_placeholder_becomes_its_value_in_its_places_alone() {
    let json = json!({
        "rules": {"a.test": [{}]},
        "secrets": {
            "key": {"value": VALUE, "hosts": ["a.test"]},
            "placed": {"value": VALUE, "hosts": ["a.test"], "in": ["header:x-key", "query:key"]},
            "elsewhere": {"value": VALUE, "hosts": ["b.test"]},
        },
        "secret_env": {"KEY": "key", "PLACED": "placed", "ELSEWHERE": "elsewhere"},
    });
    let object = object(json);
    let placeholders = Placeholders::new_for(&object);
    let of = |name: &str| placeholders.of(name).unwrap();
    let (key, placed, elsewhere) = (of("key"), of("placed"), of("elsewhere"));
    let rules =
        NetworkRules::resolve(&object, &service(), "", &placeholders, WithheldValues::Refused)
            .unwrap();
    let base64 = |text: &str| {
        use base64::Engine;
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
    };
    let sent = |name: &str, value: &str| {
        let plan = decide(&rules, "GET", "/", &[(name, value)]).plan?;
        Ok(String::from_utf8(plan.headers[name].as_bytes().to_vec()).unwrap())
    };
    let foreign = format!("cofferdam_secret_{}", "0".repeat(32));
    for (name, value, expected) in [
        ("authorization", format!("Bearer {key}"), Ok(format!("Bearer {VALUE}"))),
        ("authorization", base64(&format!("user:{key}")), Ok(base64(&format!("user:{VALUE}")))),
        ("x-api-key", format!("{key}{key}"), Ok(format!("{VALUE}{VALUE}"))),
        ("x-goog-api-key", key.clone(), Ok(VALUE.to_owned())),
        ("x-other", key.clone(), Err(RuleRefusal::SecretHost)),
        ("x-key", placed.clone(), Ok(VALUE.to_owned())),
        ("authorization", placed.clone(), Err(RuleRefusal::SecretHost)),
        ("authorization", elsewhere.clone(), Err(RuleRefusal::SecretHost)),
        ("authorization", base64(&format!("{elsewhere}:")), Err(RuleRefusal::SecretHost)),
        ("x-other", foreign.clone(), Ok(foreign.clone())),
        (key.as_str(), "1".to_owned(), Err(RuleRefusal::SecretHost)),
    ] {
        assert_eq!(sent(name, &value), expected, "{name}: {value}");
    }
    let escaped = placed.replace('_', "%5F");
    for (target, expected) in [
        (format!("/?key={placed}&a"), Ok("/?key=sk-%2Fvalue%20one&a".to_owned())),
        (format!("/?key={escaped}"), Ok("/?key=sk-%2Fvalue%20one".to_owned())),
        (format!("/?other={placed}"), Err(RuleRefusal::SecretHost)),
        (format!("/?{placed}=1"), Err(RuleRefusal::SecretHost)),
        (format!("/?key={key}"), Err(RuleRefusal::SecretHost)),
        (format!("/{key}"), Err(RuleRefusal::SecretHost)),
        (format!("/%63{}", &key[1..]), Err(RuleRefusal::SecretHost)),
        (format!("/{foreign}?{foreign}"), Ok(format!("/{foreign}?{foreign}"))),
    ] {
        let plan = decide(&rules, "GET", &target, &[]).plan;
        assert_eq!(plan.map(|plan| plan.target.to_string()), expected, "{target}");
    }
    assert!(rules.holds_placeholder(&format!("/?{}", key.replace('_', "%5f")), &HeaderMap::new()));
    assert!(!rules.holds_placeholder(&format!("/{foreign}"), &HeaderMap::new()));
}

#[test]
fn a_value_that_a_record_withholds_is_missing() {
    let json = json!({
        "rules": {"a.test": [{"path": "/keyed", "headers": {"x-a": "{{secret.key}}"}}, {}]},
        "secrets": {"key": {"value": VALUE, "hosts": ["a.test"]}, "gone": {}},
        "secret_env": {"KEY": "key"},
    });
    let recorded = serde_json::to_value(object(json)).unwrap();
    assert_eq!(recorded["secrets"]["key"]["value"], Value::Null);
    let object = object(recorded);
    let placeholders = Placeholders::new_for(&object);
    let rules =
        NetworkRules::resolve(&object, &service(), "", &placeholders, WithheldValues::Missing)
            .unwrap();
    let refusal = |target: &str, headers: &[(&str, &str)]| {
        decide(&rules, "GET", target, headers).plan.map(drop).err()
    };
    assert_eq!(refusal("/keyed", &[]), Some(RuleRefusal::SecretMissing));
    let placeholder = placeholders.of("key").unwrap();
    assert_eq!(refusal("/", &[("x-api-key", &placeholder)]), Some(RuleRefusal::SecretMissing));
    assert_eq!(refusal("/", &[]), None);
}
