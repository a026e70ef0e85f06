//! `cofferdam exec` with a network.

use std::fs;
use std::process::{Command, Output};

use cofferdam_test_server::service::cofferdam;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::origin::Origin;
use crate::support::is_privileged;

const EXEC_SECRET: &str = "sk-exec-value-of-a-secret";

fn command(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(cofferdam());
    command
        .arg("exec")
        .args(options)
        .args(["--", "sh", "-c", script])
        .env("EXEC_HOSTS_ALLOW", "localhost")
        .env("A_KEY", EXEC_SECRET);
    command
}

fn exec(options: &[&str], script: &str) -> Output {
    command(options, script).output().unwrap()
}

/// A file with rules for the origin, which adds the secret `key` there.
fn rules_file(directory: &TempDir, origin: &Origin) -> String {
    let file = directory.path().join("rules.json");
    let host = format!("localhost:{}", origin.tls);
    let rules = json!([
        {"path": "/echo", "headers": {"authorization": "Bearer {{secret.key}}"}},
        {"methods": ["GET"], "path": "/page"},
    ]);
    fs::write(&file, json!({"rules": {host: rules}}).to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_command_uses_a_secret_that_it_does_not_have() {
    if !is_privileged() {
        return;
    }
    let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
    let host = format!("localhost:{}", origin.plain);
    let file = directory.path().join("network.json");
    let rule = json!({"plain": true, "headers": {"authorization": "Bearer {{secret.key}}"}});
    fs::write(&file, json!({"rules": {&host: [rule]}}).to_string()).unwrap();
    let options = [
        "--network",
        file.to_str().unwrap(),
        "--secret",
        "key=env:A_KEY",
        "--secret-env",
        "KEY=key",
    ];
    let script =
        format!("curl -sS -m 20 http://{host}/echo; echo; echo $KEY; env | grep -c sk-exec");
    let output = exec(&options, &script);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!((lines[0], lines[2]), ("got Bearer [redacted] indeed", "0"), "{stdout}{stderr}");
    assert!(lines[1].starts_with("cofferdam_secret_"), "{stdout}");
    for options in [
        &["--network", file.to_str().unwrap()][..],
        &["--allow", "a b"],
        &["--secret", EXEC_SECRET],
        &["--secret", "key=env:NOT_SET_ANYWHERE@a.test"],
        &["--secret-env", "KEY=nobody"],
        &[
            "--allow",
            "a.test",
            "--secret",
            "k=env:A_KEY@a.test",
            "--secret-env",
            "K=k",
            "--env",
            "K=1",
        ],
    ] {
        let output = exec(options, "true");
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {told}");
        assert!(!told.contains(EXEC_SECRET), "{told}");
    }
}

#[test]
fn a_report_lists_what_the_command_asked_for_and_holds_no_value() {
    if !is_privileged() {
        return;
    }
    let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
    let file = rules_file(&directory, &origin);
    let report = directory.path().join("report.json");
    let report = report.to_str().unwrap();
    let url = format!("https://localhost:{}", origin.tls);
    let script =
        format!("for path in echo page other; do curl -s -m 20 -o /dev/null {url}/$path; done");
    let options = ["--network", &file, "--secret", "key=env:A_KEY", "--report", report];
    let ended =
        command(&options, &script).env("EGRESS_CA_FILE", origin.certificate_file()).output();
    let ended = ended.unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let text = fs::read_to_string(report).unwrap();
    assert!(!text.contains(EXEC_SECRET), "{text}");
    let written: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written["outcome"], "exited");
    let records = written["egress"].as_array().unwrap();
    let fields = ["host", "port", "decision", "reason", "method", "status", "rule", "secrets"];
    let of = |record: &Value| fields.map(|field| record[field].clone());
    let (localhost, tls, get) = (json!("localhost"), json!(origin.tls), json!("GET"));
    let row = |decision: &str, reason: Value, status: u16, rule: Value, secrets: Value| {
        let (decision, status) = (json!(decision), json!(status));
        [localhost.clone(), tls.clone(), decision, reason, get.clone(), status, rule, secrets]
    };
    let expected = [
        row("allowed", json!(null), 200, json!(0), json!(["key"])),
        row("allowed", json!(null), 200, json!(1), json!([])),
        row("denied", json!("no_rule"), 403, json!(null), json!([])),
    ];
    assert_eq!(records.iter().map(of).collect::<Vec<_>>(), expected, "{text}");
    for record in records {
        assert!(record["at"].is_string() && record["step"].is_null(), "{record}");
        let has_address = record["decision"] == "allowed";
        assert_eq!(record["address"] == "127.0.0.1", has_address, "{record}");
    }
    // The report of a command without a network has no `egress`.
    assert_eq!(exec(&["--report", report], "true").status.code(), Some(0));
    let written: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert!(written.get("egress").is_none(), "{written}");
}

#[test]
fn a_tried_command_has_its_network_and_the_files_that_tell_programs_of_it() {
    if !is_privileged() {
        return;
    }
    let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
    let tried = directory.path().join("tried");
    fs::create_dir(&tried).unwrap();
    let (file, tried) = (rules_file(&directory, &origin), tried.to_str().unwrap());
    let url = format!("https://localhost:{}", origin.tls);
    let script = format!(
        "curl -sS -m 20 {url}/echo; echo
         python3 -c 'import urllib.request as r
print(r.urlopen(\"{url}/page\", timeout=20).read().decode())'
         git ls-remote {url}/git 2>&1 | grep -c certificate
         grep -c '<port>3128</port>' ~/.m2/settings.xml
         grep -c 'https.proxyPort=3128' ~/.gradle/gradle.properties
         touch ~/.m2/own && echo $KEY | cut -c 1-17; env | grep -c sk-exec
         curl -sS -m 20 http://localhost:{}/plain; echo; echo changed > file",
        origin.plain
    );
    let expected =
        "got Bearer [redacted] indeed\nhello /page\n0\n1\n1\ncofferdam_secret_\n0\nhello /plain\n";
    let plain = format!("localhost:{}", origin.plain);
    let network = [
        "--network",
        &file,
        "--secret",
        "key=env:A_KEY",
        "--secret-env",
        "KEY=key",
        "--allow",
        &plain,
    ];
    for overlay in [&[][..], &["--overlay", tried], &["--overlay", tried, "--commit"]] {
        let options = [&network[..], overlay].concat();
        let mut command = command(&options, &script);
        let ended = command.env("EGRESS_CA_FILE", origin.certificate_file()).output().unwrap();
        let [stdout, stderr] =
            [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(
            (ended.status.code(), stdout.as_str()),
            (Some(0), expected),
            "{overlay:?} {stderr}"
        );
        // What is shown besides is no change of the directory.
        assert_eq!(stderr.contains("A file\n"), !overlay.is_empty(), "{stderr}");
        assert_eq!(stderr.lines().count(), overlay.len().min(1), "{stderr}");
    }
    assert_eq!(fs::read_to_string(directory.path().join("tried/file")).unwrap(), "changed\n");
}

/// Prints what is at the URL of its argument.
const GET_IN_JAVA: &str = "class Get {
    public static void main(String[] words) throws Exception {
        System.out.print(new String(new java.net.URI(words[0]).toURL().openStream().readAllBytes()));
    }
}";

#[test]
fn npm_and_java_need_no_setting_of_their_own_in_a_tried_command() {
    if !is_privileged() {
        return;
    }
    let has = |program: &str| Command::new("which").arg(program).output().unwrap().status.success();
    if !has("npm") || !has("java") {
        eprintln!("SKIP: no npm or no java");
        return;
    }
    let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
    let package = json!({
        "name": "x", "dist-tags": {"latest": "1.2.3"},
        "versions": {"1.2.3": {"name": "x", "version": "1.2.3"}},
    });
    fs::write(origin.served().join("x"), package.to_string()).unwrap();
    let (tried, network) = (directory.path().join("tried"), directory.path().join("network.json"));
    fs::create_dir(&tried).unwrap();
    fs::write(tried.join("Get.java"), GET_IN_JAVA).unwrap();
    // Java names no host of a single word in its handshake.
    let (host, hosts) = (format!("origin.test:{}", origin.tls), directory.path().join("hosts"));
    fs::write(&hosts, "127.0.0.1 localhost origin.test\n").unwrap();
    fs::write(&network, json!({"rules": {&host: [{"methods": ["GET"]}]}}).to_string()).unwrap();
    let options = ["--network", network.to_str().unwrap(), "--overlay", tried.to_str().unwrap()];
    let script = format!(
        "npm view x version --registry=https://{host}/files/; java Get.java https://{host}/page 2> /dev/null"
    );
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount --bind $1 /etc/hosts; shift; exec \"$@\"", "sh"])
        .args([hosts.as_os_str(), cofferdam().as_os_str(), "exec".as_ref()])
        .args(options)
        .args(["--", "sh", "-c", &script])
        .env("EXEC_HOSTS_ALLOW", "origin.test")
        .env("EGRESS_CA_FILE", origin.certificate_file())
        .output()
        .unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "1.2.3\nhello /page", "{told}");
}
