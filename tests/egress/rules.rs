//! Jobs whose requests are judged by rules, and get secrets that no sandbox has.

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::jobs::{PATIENCE, scene};
use crate::origin::Origin;

const SECRET: &str = "sk-the-value-of-a-secret";

/// The network of these tests.
fn network(origin: &Origin) -> Value {
    let host = format!("localhost:{}", origin.tls);
    json!({
        "rules": {&host: [
            {"path": "/echo/added", "headers": {"authorization": "Bearer {{secret.key}}"}},
            {"path": "/denied*", "action": "deny"},
            {"methods": ["GET"]},
        ]},
        "secrets": {"key": {"value": SECRET, "hosts": [&host]}},
        "secret_env": {"API_KEY": "key"},
    })
}

#[test]
fn a_job_uses_a_secret_that_is_nowhere_in_its_sandbox() {
    let Some(scene) = scene(&[]) else { return };
    let tls = scene.origin.tls;
    // The script does not hold what it looks for.
    let reversed: String = SECRET.chars().rev().collect();
    let script = format!(
        "curl -sS -m 20 https://localhost:{tls}/echo/added; echo
         curl -sS -m 20 -H \"authorization: Bearer $API_KEY\" https://localhost:{tls}/echo/held; echo
         curl -sS -m 20 -o /dev/null -w '%{{http_code}}\\n' https://localhost:{tls}/denied
         curl -sS -m 20 -o /dev/null -w '%{{http_code}}\\n' https://localhost:{tls}/?key=$API_KEY
         echo \"$API_KEY\" | grep -c '^cofferdam_secret_[0-9a-f]*$'
         value=$(echo {reversed} | rev)
         env | grep -c \"$value\"
         grep -rl \"$value\" /run /tmp /etc /dev/shm /var/tmp /workspace . 2>/dev/null | wc -l
         cat /proc/[0-9]*/environ 2>/dev/null | grep -c \"$value\""
    );
    let result = scene.result(&scene.request(&script, &network(&scene.origin)));
    let got = "got Bearer [redacted] indeed";
    let expected = format!("{got}\n{got}\n403\n403\n1\n0\n0\n0\n");
    assert_eq!(result["stdout"]["text"], expected, "{result}");
    assert!(!result.to_string().contains(SECRET), "{result}");
    let records: Vec<_> = result["egress"].as_array().unwrap().iter().collect();
    let fields = ["method", "status", "rule", "secrets", "path", "reason"];
    let of = |record: &Value| fields.map(|field| record[field].clone());
    let key = json!(["key"]);
    let expected = [
        [json!("GET"), json!(200), json!(0), key.clone(), json!("/echo/added"), json!(null)],
        [json!("GET"), json!(200), json!(2), key, json!("/echo/held"), json!(null)],
        [json!("GET"), json!(403), json!(1), json!([]), json!("/denied"), json!("rule_denied")],
        [json!("GET"), json!(403), json!(2), json!([]), json!("/"), json!("secret_host")],
    ];
    let seen: Vec<_> = records.into_iter().map(of).collect();
    assert_eq!(seen, expected, "{result}");
}

#[test]
fn programs_trust_the_authority_of_their_sandbox_by_every_bundle() {
    let Some(scene) = scene(&[]) else { return };
    let tls = scene.origin.tls;
    let script = format!(
        "python3 -c 'import urllib.request as r
print(r.urlopen(\"https://localhost:{tls}/py\", timeout=20).read().decode())'
         env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sS -m 20 https://localhost:{tls}/bundle; echo
         cmp /run/cofferdam/ca-bundle.pem /etc/ssl/certs/ca-certificates.crt && echo same
         touch /run/cofferdam/ca-bundle.pem 2>/dev/null || echo kept
         git ls-remote https://localhost:{tls}/git 2>&1 | grep -c certificate"
    );
    let result = scene.result(&scene.request(&script, &network(&scene.origin)));
    let expected = "hello /py\nhello /bundle\nsame\nkept\n0\n";
    assert_eq!(result["stdout"]["text"], expected, "{result}");
    // A job without rules has the bundles of the host.
    let allow = json!({"allow": scene.origin.entries()});
    let script = format!(
        "ls /run/cofferdam 2>/dev/null; echo \"$SSL_CERT_FILE\"
         curl -sS -m 20 https://localhost:{tls}/x >/dev/null 2>&1; echo $?"
    );
    let result = scene.result(&scene.request(&script, &allow));
    assert_eq!(result["stdout"]["text"], "\n60\n", "{result}");
}

#[test]
fn the_certificates_of_a_killed_service_are_gone_after_the_next_start() {
    let Some(mut killed) = scene(&[]) else { return };
    let footprint = killed.footprint();
    let posted = killed.post(&killed.request("sleep 60", &network(&killed.origin)));
    assert_eq!(posted.status, 202, "{}", posted.json());
    wait_until("certificates", PATIENCE, || !footprint.trust_directories().is_empty());
    killed.kill();
    let _next = scene(&[]);
    wait_until("no certificates", PATIENCE, || footprint.is_gone());
}
