//! What commands in containers reach by rules: the certificates of those whom they trust, and secrets that they have not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_test_server::recorded::{RecordedHost, TestAuthority};
use cofferdam_test_support::has;

use super::doors::Scene;
use super::engine::{IMAGE, found};
use super::lasting::{CaseRun, Ended};

const SECRET: &str = "sk-never-in-a-container";
const ADDRESS: [u8; 4] = [127, 0, 0, 2];

/// Asks the host as the agent. The pattern does not match itself.
const AGENT: &str = r#"
ask="curl/$1 --library-path curl curl/curl -sS --max-time 60"
$ask -H "authorization: Bearer $KEY" https://$2/agent > answer 2>&1
$ask -o /dev/null -w '%{http_code}' -X DELETE https://$2/agent > denied 2>&1
ls /run/cofferdam > shown
head -n 1 /run/cofferdam/ca-bundle.pem > bundle
(echo x > /run/cofferdam/x) 2> /dev/null || echo refused > write
env | cut -d= -f1 | grep -xE 'SSL_CERT_FILE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS' | sort > variables
case $KEY in cofferdam_secret_*) echo placeholder > key ;; esac
grep -rlsE 'sk-[n]ever' "$PWD" /home /tmp /run /etc /proc/[0-9]*/environ /proc/[0-9]*/cmdline > found
true
"#;

/// The Case whose provisioning and agent ask the host `HOST`.
const BLOCKS: &str = r#"container: {image: IMAGE, harness: true, setup: ['mkdir -p /etc/ssl/certs; echo of-the-image > /etc/ssl/certs/ca-certificates.crt']}
environment:
  kind: command
  egress: [HOST]
  commands: ['curl/LOADER --library-path curl curl/curl -sS --max-time 60 https://HOST/provision > provisioned']
setup: {run: ['ls -A /run/cofferdam > shown-to-setup']}
harnesses:
  mine:
    kind: command
    argv: [sh, agent.sh, LOADER, HOST]
    network:
      rules: {HOST: [{methods: [GET], headers: {x-added: 'v {{secret.k}}'}}]}
      secrets: {k: {value: {env: TEST_KEY}, hosts: [HOST]}}
      secret_env: {KEY: k}
graders: [{type: command, cmd: 'test -z "$(ls -A /run/cofferdam)" && test -z "$CURL_CA_BUNDLE"'}]
"#;

/// Copies curl with its libraries to the directory `to`. Returns the name of their loader.
fn copy_curl(curl: &Path, to: &Path) -> String {
    fs::create_dir(to).unwrap();
    fs::copy(curl, to.join("curl")).unwrap();
    let needed = Command::new("ldd").arg(curl).output().unwrap().stdout;
    let needed = String::from_utf8(needed).unwrap();
    let mut loader = None;
    for line in needed.lines() {
        let (name, path) = line.trim().split_once(" => ").unwrap_or(("", line.trim()));
        let path = PathBuf::from(path.split(' ').next().unwrap());
        let Some(file_name) = path.file_name().filter(|_| path.is_absolute()) else { continue };
        fs::copy(&path, to.join(file_name)).unwrap();
        if name.is_empty() {
            loader = Some(file_name.to_str().unwrap().to_owned());
        }
    }
    loader.unwrap()
}

#[test]
fn rules_add_secrets_that_no_container_has_and_programs_trust_the_proxy_while_they_may() {
    let Some(scene) = Scene::new() else { return };
    let Some(run) = CaseRun::new(&scene) else { return };
    let curl = found("curl");
    if !has("curl", curl.is_some()) {
        return;
    }
    let loader = copy_curl(&curl.unwrap(), &scene.source().join("curl"));
    fs::write(scene.source().join("agent.sh"), AGENT).unwrap();
    let authority = TestAuthority::default();
    let tls = authority.config("127.0.0.2", &["http/1.1"]);
    let host = RecordedHost::answering(ADDRESS, Some(tls), |head| {
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let body = value("authorization: ").or_else(|| value("x-added: ")).unwrap_or("none");
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let network = scene.cells().join("network.json");
    let rules = format!(
        "{{\"rules\": {{\"{}\": [{{\"headers\": {{\"x-added\": \"provision\"}}}}]}}}}",
        host.authority()
    );
    fs::write(&network, rules).unwrap();
    let blocks =
        [("IMAGE", IMAGE), ("LOADER", &loader), ("HOST", &format!("'{}'", host.authority()))]
            .into_iter()
            .fold(
                BLOCKS.replace("https://HOST", &format!("https://{}", host.authority())),
                |text, (name, value)| text.replace(name, value),
            );
    let mut command = run.command(&blocks, 1, &["--keep"]);
    command.env("TEST_KEY", SECRET).env("EGRESS_CA_FILE", authority.file());
    let output = command.env("CASES_PROVISION_NETWORK", &network).output().unwrap();
    let ended = Ended::of(&output);
    let result = fs::read_to_string(ended.cell(1).join("result.json")).unwrap();
    assert_eq!(ended.passed(), 1, "{}: {result}", ended.stderr);
    let heard = host.heard();
    for wanted in
        [format!("Bearer {SECRET}"), format!("x-added: v {SECRET}"), "x-added: provision".into()]
    {
        assert!(heard.contains(&wanted), "{wanted}: {heard}");
    }
    assert_eq!(host.requests(), ["GET /provision", "GET /agent"]);
    for (file, wanted) in [
        ("provisioned", "provision"),
        ("shown-to-setup", ""),
        ("answer", "Bearer [redacted]"),
        ("denied", "403"),
        ("shown", "ca-bundle.p12\nca-bundle.pem\nca-root.pem\n"),
        ("bundle", "of-the-image\n"),
        ("write", "refused\n"),
        ("variables", "CURL_CA_BUNDLE\nNODE_EXTRA_CA_CERTS\nSSL_CERT_FILE\n"),
        ("key", "placeholder\n"),
        ("found", ""),
    ] {
        assert_eq!(ended.kept(1, file), wanted, "{file}");
    }
    let store = scene.store();
    let searched = Command::new("grep").args(["-rl", SECRET]).arg(store).output().unwrap();
    assert_eq!(String::from_utf8(searched.stdout).unwrap(), "");
}
