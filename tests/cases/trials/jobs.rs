//! Agents that are jobs: a request over the sandbox, whose tree at its end is graded.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::scene::{HIDDEN_TEST, RunEnd, Scene};
use crate::harness::endpoint::{Endpoint, answer};

const EXECUTORS: [&str; 2] = ["sandboxed", "local"];
/// A wide bound, for a busy host.
const BEGUN_WITHIN: Duration = Duration::from_secs(120);
const KEY: &str = "sk-of-a-job-0123456789";

/// A harness whose job runs `script` by Python, with more keys of the request.
fn python(name: &str, script: &str, more: &str) -> String {
    let argv = json!(["python3", "-c", script]);
    let policy =
        if more.contains("policy:") { "" } else { "policy: {allowed_commands: [python3]}, " };
    format!("  {name}: {{kind: job, command: {{argv: {argv}}}, {policy}{more}}}\n")
}

/// The Case with `harnesses`, each of which is tried once.
fn scene(harnesses: &str, blocks: &str) -> Option<Scene> {
    let names: Vec<&str> = harnesses
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_once(": {"))
        .map(|(name, _)| name)
        .collect();
    let matrix = format!("matrix: {{harnesses: [{}], models: [m]}}\n", names.join(", "));
    Scene::new(&format!("harnesses:\n{harnesses}{matrix}{blocks}"))
}

fn by(executor: &str, scene: &Scene) -> RunEnd {
    scene.run(&["--executor", executor])
}

fn file(scene: &Scene, end: &RunEnd, harness: &str, name: &str) -> String {
    fs::read_to_string(scene.cell(end, harness, 1).join(name)).unwrap()
}

#[test]
fn the_tree_at_the_end_of_a_job_is_graded() {
    let work = "import os
text = open('add.py').read().replace('a - b', 'a + b')
open('add.py', 'w').write(text)
os.remove('kept')
os.mkdir('new')
open('new/tool', 'w').write('#!/bin/sh\\necho tool\\n')
os.chmod('new/tool', 0o755)
os.symlink('/no/such/place', 'out')
os.symlink('new/tool', 'in')
os.mkfifo('fifo')
print(open('.env').read(), open('.git/marker').read(), os.getcwd(), sorted(os.environ))";
    let harnesses = [python("mine", work, ""), python("idle", "", "")].concat();
    let blocks = format!(
        "setup: {{run: ['echo value > .env; git init -q .; echo marked > .git/marker; ln -s /etc/hostname host']}}\n{HIDDEN_TEST}- type: command
  cmd: 'test ! -e kept && test \"$(new/tool)\" = tool && test \"$(readlink out)\" = /no/such/place && test \"$(readlink in)\" = new/tool'
"
    );
    let Some(scene) = scene(&harnesses, &blocks) else { return };
    for executor in EXECUTORS {
        let end = by(executor, &scene);
        assert_eq!(end.cells(), [2, 0, 0, 0], "{executor}: {}", end.stderr);
        let mine = scene.result(&end, "mine", 1);
        assert_eq!(mine["overall_score"], json!(1.0), "{executor} {mine}");
        assert_eq!(
            (&mine["agent"]["outcome"], &mine["agent"]["exit_code"]),
            (&json!("exited"), &json!(0))
        );
        assert!(mine["agent"]["wall_ms"].is_u64());
        let output = file(&scene, &end, "mine", "output.txt");
        assert_eq!(output, "value\n marked\n /workspace ['LC_CTYPE']\n", "{executor}");
        let idle = scene.result(&end, "idle", 1);
        assert_eq!(idle["overall_passed"], json!(false), "{idle}");
        assert_eq!(file(&scene, &end, "idle", "agent.patch"), "", "{executor}");
        scene.assert_nothing_left();
    }
}

#[test]
fn a_job_that_ends_badly_or_late_is_graded() {
    let work = "import os, sys, time
text = open('add.py').read().replace('a - b', 'a + b')
open('add.py', 'w').write(text)
print('done', flush=True)
";
    let end_with = |name: &str, end: &str, more: &str| python(name, &format!("{work}{end}"), more);
    let harnesses = [
        end_with("late", "time.sleep(600)", "limits: {timeout_ms: 2000}"),
        end_with("step", "time.sleep(600)", "timeout_s: 3"),
        end_with("bad", "sys.exit(7)", ""),
        end_with("killed", "os.kill(os.getpid(), 9)", ""),
    ]
    .concat();
    let Some(scene) = scene(&harnesses, HIDDEN_TEST) else { return };
    for executor in EXECUTORS {
        let end = by(executor, &scene);
        assert_eq!(end.cells(), [4, 0, 0, 0], "{executor}: {}", end.stderr);
        for (harness, outcome, exit_code) in [
            ("late", "timed_out", Value::Null),
            ("step", "timed_out", Value::Null),
            ("bad", "exited", json!(7)),
            ("killed", "signaled", Value::Null),
        ] {
            let result = scene.result(&end, harness, 1);
            assert_eq!(result["overall_score"], json!(1.0), "{executor} {result}");
            let agent = (&result["agent"]["outcome"], &result["agent"]["exit_code"]);
            assert_eq!(agent, (&json!(outcome), &exit_code), "{executor} {harness}");
            assert_eq!(file(&scene, &end, harness, "output.txt"), "done\n");
        }
    }
}

#[test]
fn a_job_cannot_plant_what_decides_how_it_is_graded() {
    let cheat = "open('sitecustomize.py', 'w').write('raise SystemExit(0)')
open('test_hidden.py', 'w').write('x = 1')
open('made', 'w').write('made')";
    let Some(scene) = scene(&python("mine", cheat, ""), HIDDEN_TEST) else { return };
    for executor in EXECUTORS {
        let end = by(executor, &scene);
        let result = scene.result(&end, "mine", 1);
        assert_eq!(result["overall_score"], json!(0.5), "{executor} {result}");
        let protected = &result["agent"]["protected"];
        assert_eq!(protected, &json!(["sitecustomize.py", "test_hidden.py"]), "{executor}");
    }
}

#[test]
fn a_job_that_may_not_or_cannot_run_fails_and_names_the_field() {
    let request =
        |name: &str, keys: &str| format!("  {name}: {{kind: job, request: {{{keys}}}}}\n");
    let allowed = "policy: {allowed_commands: [python3]}";
    let rows = [
        ("command", "command: {argv: [python3]}", "policy.allowed_commands: policy.command_denied"),
        (
            "shell",
            "command: {argv: [sh, -c, 'true']}, policy: {allowed_commands: [sh]}",
            "policy.allow_shell: policy.shell_denied",
        ),
        (
            "env",
            &format!("command: {{argv: [python3], env: {{A: b}}}}, {allowed}"),
            "command.env.A: policy.env_denied",
        ),
        (
            "host",
            "command: {argv: [python3]}, policy: {allowed_commands: [python3], network: host}",
            "policy.network: policy.network_denied",
        ),
        (
            "secret",
            "command: {argv: [python3]}, policy: {allowed_commands: [python3], network: {rules: {a.example: [{headers: {x: '{{secret.gone}}'}}]}}}",
            "policy.network: policy.secret_denied",
        ),
        (
            "maximum",
            &format!("command: {{argv: [python3]}}, {allowed}, limits: {{processes: 100000000}}"),
            "validation.invalid_request: limits.processes",
        ),
        (
            "machine",
            &format!("command: {{argv: [python3]}}, {allowed}, backend: {{kind: firecracker}}"),
            "backend.kind: backend.unavailable",
        ),
        (
            "missing",
            "command: {argv: [no-such-program]}, policy: {allowed_commands: [no-such-program]}",
            "command.argv: run.spawn_failed",
        ),
        (
            "cwd",
            &format!("command: {{argv: [python3], cwd: gone}}, {allowed}"),
            "command.cwd: backend.setup_failed",
        ),
        (
            "files",
            &format!("command: {{argv: [python3]}}, {allowed}, limits: {{snapshot_bytes: 1}}"),
            "limits: backend.setup_failed",
        ),
    ];
    let harnesses: String = rows.iter().map(|(name, keys, _)| request(name, keys)).collect();
    let Some(scene) = scene(&harnesses, HIDDEN_TEST) else { return };
    let end = by("sandboxed", &scene);
    assert_eq!((end.code, end.cells()), (Some(4), [0, 10, 0, 0]), "{}", end.stderr);
    for (name, _, words) in rows {
        let error = &scene.result(&end, name, 1)["error"];
        assert_eq!(error["code"], "harness.failed", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(words), "{name}: {message}");
    }
    scene.assert_nothing_left();
}

#[test]
fn a_job_reaches_what_its_request_names_and_its_secret_is_nowhere() {
    let endpoint = Endpoint::new([answer(200, "", &json!("found"))]);
    let (address, host) = (endpoint.base_url(), endpoint.host());
    let work = format!(
        "import urllib.request, os
print(urllib.request.urlopen('{address}/x').read().decode())
open('seen', 'w').write(str(os.environ))"
    );
    let policy = format!(
        "policy: {{allowed_commands: [python3], network: {{rules: {{'{host}': [{{plain: true, headers: {{authorization: 'Bearer {{{{secret.k}}}}'}}}}]}}, secrets: {{k: {{value: {{env: JOB_KEY}}, hosts: ['{host}']}}}}}}}}"
    );
    let harnesses = python("mine", &work, &policy);
    let Some(scene) = scene(&harnesses, HIDDEN_TEST) else { return };
    let output = scene.command("run", &["--keep"]).env("JOB_KEY", KEY).output().unwrap();
    let end = RunEnd::of(&output);
    assert_eq!(end.cells(), [1, 0, 0, 0], "{}", end.stderr);
    let trace = file(&scene, &end, "mine", "trace.jsonl");
    assert_eq!(file(&scene, &end, "mine", "output.txt"), "\"found\"\n", "{trace}");
    let came = endpoint.came();
    assert_eq!(came[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    scene.assert_no_file_has(KEY);
}

/// Whether a file named `stdout` below `directory` has anything.
fn has_output(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        let is_stdout = path.ends_with("stdout");
        path.is_dir() && has_output(&path)
            || is_stdout && path.metadata().is_ok_and(|metadata| metadata.len() > 0)
    })
}

#[test]
fn a_signal_ends_a_job_and_leaves_its_cell_pending() {
    let work = "import time; print('begun', flush=True); time.sleep(600)";
    let harnesses = python("mine", work, "limits: {timeout_ms: 600000}");
    let Some(scene) = scene(&harnesses, HIDDEN_TEST) else { return };
    let mut command = scene.command("run", &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    while !has_output(&scene.store().join("case-sessions")) {
        assert!(since.elapsed() < BEGUN_WITHIN, "the job does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    let asked = Instant::now();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let end = RunEnd::of(&child.wait_with_output().unwrap());
    assert_eq!((end.code, end.cells()), (Some(143), [0, 0, 0, 1]), "{}", end.stderr);
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    scene.assert_nothing_left();
}
