//! A program that trusts the authority of one sandbox, at the proxy of another. `tests/egress/clients` has programs that
//! trust their own.

use std::process::Command;

use serde_json::json;

use super::scene::{HostAuthority, RuledScene};
use crate::egress::environment::proxy_environment;

#[test]
fn programs_do_not_trust_the_authority_for_other_hosts() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let other = RuledScene::new(&authority, json!({"rules": {format!("b.test:{port}"): [{}]}}));
    let rules = json!({"rules": {format!("a.test:{port}"): [{}]}});
    let scene = RuledScene::new(&authority, rules);
    let ask = |trusting: &RuledScene, through: &RuledScene| {
        let root = trusting.root_file();
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "60", &format!("https://a.test:{port}/")])
            .arg("--cacert")
            .arg(root)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .envs(proxy_environment(through.scene.address.port(), false))
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_ok, said) = ask(&scene, &scene);
    assert!(is_ok, "{said}");
    assert_eq!(requests.try_iter().count(), 1);
    let (is_ok, said) = ask(&other, &scene);
    assert!(!is_ok && said.contains("certificate"), "{said}");
    assert!(requests.try_recv().is_err());
}
