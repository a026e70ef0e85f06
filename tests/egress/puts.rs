//! `PUT W/network`: what ends with it, what begins anew, and what programs of a live sandbox then reach.

use std::time::Duration;

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::workspaces::{WorkspaceScene, scene, scene_with};

/// Less than the proxy lets a silent tunnel live.
const BEFORE_IDLE_END: Duration = Duration::from_secs(30);
const PUT_SECRET: &str = "sk-put-value-of-a-secret";

/// Opens a tunnel to a host that the list alone allows, one to a host with rules in which an answer comes without
/// an end, and one more of those that is silent. Prints what is open, and later what has ended.
const TUNNELS: &str = r"
import select, socket, ssl, sys

port = int(sys.argv[1])

def tunnel(host, server_name):
    s = socket.create_connection(('127.0.0.1', 3128), timeout=20)
    s.sendall(f'CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n'.encode())
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        byte = s.recv(1)
        assert byte, head
        head += byte
    assert b' 200 ' in head, head
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(s, server_hostname=server_name)

def ask(s, path):
    s.sendall(f'GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n'.encode())
    assert b' 200 ' in s.recv(4096)

listed, dripping, silent = tunnel('127.0.0.1', None), tunnel('localhost', 'localhost'), tunnel('localhost', 'localhost')
ask(listed, '/a')
ask(silent, '/a')
ask(dripping, '/drip')
open_ones = {listed: 'listed', dripping: 'dripping', silent: 'silent'}
print('open', flush=True)
while open_ones:
    for s in select.select(list(open_ones), [], [])[0]:
        try:
            more = s.recv(4096)
        except (ssl.SSLError, OSError):
            more = b''
        if not more:
            print(open_ones.pop(s), flush=True)
";

/// What a session has printed so far.
fn printed(scene: &WorkspaceScene, session: &str) -> Vec<String> {
    let log = scene.ask("GET", &format!("{session}/log"), &Value::Null).json();
    log["output"].as_str().unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tunnels_that_a_put_no_longer_allows_end_and_no_other() {
    let hosts = [
        ("ENGINE_NETWORK_HOSTS", "localhost:*,127.0.0.1:*"),
        ("ENGINE_HOSTS_ALLOW", "localhost,127.0.0.1"),
    ];
    let Some(scene) = scene_with(&hosts) else { return };
    let port = scene.origin.tls;
    let rules = json!({format!("localhost:{port}"): [{}]});
    let network = json!({"allow": [format!("127.0.0.1:{port}")], "rules": rules});
    let made = scene.ask("POST", "/v1/workspaces", &json!({"network": network}));
    let workspace = scene.created(&made);
    let body = json!({"cmd": "python3", "args": ["-c", TUNNELS, port.to_string()]});
    let session = scene.ask("POST", &format!("{workspace}/sessions"), &body).json();
    let session = format!("{workspace}/sessions/{}", session["session_id"].as_str().unwrap());
    wait_until("open tunnels", BEFORE_IDLE_END, || printed(&scene, &session) == ["open"]);
    let put = |network: &Value| {
        let put = scene.ask("PUT", &format!("{workspace}/network"), network);
        assert_eq!(put.status, 200, "{}", put.json());
    };
    put(&json!({"rules": rules}));
    wait_until("the end of the listed tunnel", BEFORE_IDLE_END, || {
        printed(&scene, &session) == ["open", "listed"]
    });
    // A host that is listed now is no longer one with rules: both its tunnels end, the busy and the silent one.
    put(&json!({"allow": [format!("localhost:{port}")]}));
    wait_until("the end of the tunnels with rules", BEFORE_IDLE_END, || {
        let mut ended = printed(&scene, &session);
        ended.sort();
        ended == ["dripping", "listed", "open", "silent"]
    });
}

#[test]
fn counts_begin_anew_with_each_put() {
    let Some(scene) = scene() else { return };
    let url = format!("http://localhost:{}/page", scene.origin.plain);
    let rule = json!({"plain": true, "requests_max": 2});
    let network = json!({"rules": {format!("localhost:{}", scene.origin.plain): [rule]}});
    let made = scene.ask("POST", "/v1/workspaces", &json!({"network": network}));
    let workspace = scene.created(&made);
    let codes =
        format!("for i in 1 2 3; do curl -s -m 20 -o /dev/null -w '%{{http_code}} ' {url}; done");
    for _ in 0..2 {
        assert_eq!(scene.sh(&workspace, &codes)["stdout"], "200 200 429 ");
        let put = scene.ask("PUT", &format!("{workspace}/network"), &network);
        assert_eq!(put.status, 200, "{}", put.json());
    }
}

#[test]
fn programs_of_a_live_sandbox_trust_hosts_that_a_put_adds() {
    let Some(scene) = scene_with(&[("ENGINE_NETWORK_HOSTS", "localhost:*,*.localhost")]) else {
        return;
    };
    let tls = scene.origin.tls;
    let host = format!("localhost:{tls}");
    let added = json!({"rules": {
        &host: [{"headers": {"authorization": "Bearer {{secret.key}}"}}],
        "localhost:1": [{}],
    }, "secrets": {"key": {"value": PUT_SECRET, "hosts": [&host]}}, "secret_env": {"API_KEY": "key"}});
    // What was there before: a list alone, rules for another host, and rules that are gone again.
    let other = json!({"rules": {"localhost.localhost:443": [{}]}});
    let plain = json!({"allow": [format!("localhost:{}", scene.origin.plain)]});
    for (sandbox, before) in [
        ("workspace", vec![&plain]),
        ("workspace", vec![&other]),
        ("workspace", vec![&other, &plain]),
        ("program", vec![&plain]),
        ("program", vec![&other]),
    ] {
        let body = json!({"sandbox": sandbox, "network": before[0]});
        let made = scene.ask("POST", "/v1/workspaces", &body);
        let workspace = scene.created(&made);
        let put = |network: &Value| {
            let put = scene.ask("PUT", &format!("{workspace}/network"), network);
            assert_eq!(put.status, 200, "{}", put.json());
        };
        let seen = "touch /dev/shm/same; printf %s \"$API_KEY\"; curl -sS -m 20 \
                    https://localhost:1/ 2>/dev/null || echo refused";
        assert_eq!(scene.sh(&workspace, seen)["stdout"], "refused\n", "{sandbox} {before:?}");
        before[1..].iter().for_each(|network| put(network));
        put(&added);
        let script = format!(
            "curl -sS -m 20 https://localhost:{tls}/echo; echo; ls /dev/shm; echo $API_KEY
             python3 -c 'import urllib.request as r
print(r.urlopen(\"https://localhost:{tls}/py\", timeout=20).read().decode())'"
        );
        let result = scene.sh(&workspace, &script);
        let stdout = result["stdout"].as_str().unwrap();
        let mut lines = stdout.lines();
        assert_eq!(
            lines.next(),
            Some("got Bearer [redacted] indeed"),
            "{sandbox} {before:?} {result}"
        );
        // Programs share the sandbox that was there before the first PUT.
        if sandbox == "workspace" {
            assert_eq!(lines.next(), Some("same"), "{result}");
        }
        assert!(lines.next().unwrap().starts_with("cofferdam_secret_"), "{result}");
        assert_eq!(lines.next(), Some("hello /py"), "{result}");
    }
}

#[test]
fn a_fork_has_placeholders_of_its_own_and_programs_of_a_session_keep_theirs() {
    let Some(scene) = scene() else { return };
    let host = format!("localhost:{}", scene.origin.plain);
    let network = |value: &str| {
        json!({
            "rules": {&host: [{"plain": true}]},
            "secrets": {"key": {"value": value, "hosts": [&host]}},
            "secret_env": {"API_KEY": "key"},
        })
    };
    let body = json!({"network": network(PUT_SECRET), "sandbox": "workspace"});
    let workspace = scene.created(&scene.ask("POST", "/v1/workspaces", &body));
    let placeholder = |workspace: &str| scene.sh(workspace, "printf %s $API_KEY")["stdout"].clone();
    let own = placeholder(&workspace);
    let fork = format!("{workspace}/fork");
    let forked = scene.created(&scene.ask("POST", &fork, &body));
    assert_ne!(placeholder(&forked), own);
    let bare = scene.created(&scene.ask("POST", &fork, &json!({})));
    assert_eq!(placeholder(&bare), "");
    // One that began before the PUT goes on with its placeholder, which means the new value.
    let ask = format!("curl -sS -m 20 -H \"authorization: Bearer $API_KEY\" http://{host}/sum");
    let body = json!({
        "cmd": "sh", "args": ["-c", format!("{ask}; echo; read line; {ask}; echo")],
    });
    let session = scene.ask("POST", &format!("{workspace}/sessions"), &body).json();
    let session = format!("{workspace}/sessions/{}", session["session_id"].as_str().unwrap());
    let sum = |value: &str| crate::support::sha256(&format!("Bearer {value}"));
    wait_until("the first sum", BEFORE_IDLE_END, || printed(&scene, &session) == [sum(PUT_SECRET)]);
    let changed = "sk-another-value-of-it";
    let put = scene.ask("PUT", &format!("{workspace}/network"), &network(changed));
    assert_eq!(put.status, 200, "{}", put.json());
    let written =
        scene.ask("POST", &format!("{session}/write"), &json!({"data": "go", "newline": true}));
    assert_eq!(written.status, 200, "{}", written.json());
    wait_until("the second sum", BEFORE_IDLE_END, || {
        printed(&scene, &session) == [sum(PUT_SECRET), sum(changed)]
    });
    assert_eq!(placeholder(&workspace), own);
}
