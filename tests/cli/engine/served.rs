//! `cofferdam workspace` with a real `cofferdam serve`.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::running_server::RunningServer;
use crate::support::{Call, cofferdam, ends_within, is_running, langs, pid_of, until_running};

/// A service with one workspace.
struct ServedWorkspace {
    server: RunningServer,
    directory: TempDir,
    id: String,
}

impl ServedWorkspace {
    /// Creates the workspace with `options`; none where workspaces are impossible, which
    /// `REQUIRE_PRIVILEGED=1` forbids.
    fn create(options: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
            assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
            eprintln!("SKIP: not root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let call = cofferdam("serve --addr 127.0.0.1:0 --langs").arg(langs()).arg("--engine-dir");
        let call = call.arg(directory.path().join("engine")).env("JOBS", "off");
        let mut served = Self { server: RunningServer::start(call), directory, id: String::new() };
        let created = served.call("create").words(options).run().exits(0).quietly().json();
        created["workspace_id"].as_str().unwrap().clone_into(&mut served.id);
        Some(served)
    }

    /// `cofferdam workspace` with `words` split at spaces.
    fn call(&self, words: &str) -> Call {
        cofferdam("workspace").words(words).env("COFFERDAM_SERVER", &self.server.url)
    }

    /// A verb for the workspace.
    fn verb(&self, verb: &str, words: &str) -> Call {
        self.call(verb).arg(&self.id).words(words)
    }

    fn run_sh(&self, options: &str, script: &str) -> Call {
        self.verb("run", options).words("-- sh -c").arg(script)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

#[test]
fn a_workspace_is_created_shown_listed_and_removed() {
    let Some(served) =
        ServedWorkspace::create("--exec-id one --env A=secret --max-disk-bytes 1MiB")
    else {
        return;
    };
    let shown = served.verb("show", "").run().exits(0).quietly().json();
    assert_eq!((&shown["exec_id"], &shown["env"]), (&json!("one"), &json!(["A"])));
    assert_eq!(shown["disk"]["limit_bytes"], 1 << 20);
    let acquired = served.call("create --exec-id one --acquire").run().exits(0).json();
    assert_eq!(acquired["workspace_id"], served.id);
    served.call("create --exec-id two").run().exits(0);
    let list = |words: &str| served.call("list").words(words).run().exits(0).quietly().json();
    assert_eq!(list("")["workspaces"].as_array().unwrap().len(), 2);
    assert_eq!(list("--exec-id two")["workspaces"].as_array().unwrap().len(), 1);
    assert!(list("--limit 1")["next_cursor"].is_string());
    assert!(served.call("describe").run().exits(0).json().is_object());
    let removed = served.verb("rm", "").run().exits(0).quietly().json();
    assert_eq!(removed, json!({"workspace_id": served.id, "persisted": false}));
    let error = served.verb("show", "").run().exits(1).prints("").error();
    assert_eq!(error["code"], "workspace.not_found");
    let error = served.call("create --ttl-ms 9000h").run().exits(2).prints("").error();
    assert_eq!(error["code"], "validation.invalid_request");
}

#[test]
fn snapshots_are_listed_and_deleted() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let snapshot = served.verb("snapshot", "").run().exits(0).quietly().json();
    let id = snapshot["snapshot_id"].as_str().unwrap();
    let listed = || served.call("snapshots").run().exits(0).quietly().json()["snapshots"].clone();
    assert_eq!(listed(), serde_json::json!([snapshot]));
    served.call(&format!("snapshot-rm {id}")).run().exits(0).quietly().prints("{}\n");
    assert_eq!(listed(), serde_json::json!([]));
    let error = served.call(&format!("snapshot-rm {id}")).run().exits(1).prints("").error();
    assert_eq!(error["code"], "snapshot.not_found");
}

#[test]
fn files_are_put_got_listed_moved_collected_and_deleted() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let file = served.path().join("file");
    fs::write(&file, &bytes).unwrap();
    let put = served.verb("put", "").arg(&file).words("work/a/b.bin --mode 0755").run().exits(0);
    assert!(put.json().is_object());
    served.verb("put", "- out/c.txt").fed("é\n").run().exits(0).quietly();
    let got = served.verb("get", "work/a/b.bin").run().exits(0).quietly();
    assert!(got.output.stdout == bytes);
    let stat = served.verb("stat", "work/a/b.bin").run().exits(0).json();
    assert_eq!((&stat["bytes"], &stat["mode"]), (&json!(300_000), &json!("0755")));
    let paths = |words: &str| -> Vec<String> {
        let list = served.verb("ls", words).run().exits(0).quietly().json();
        let entries = list["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(""), ["metadata.json", "out", "runs", "skills", "work"]);
    assert_eq!(paths("work --depth 2"), ["work/a", "work/a/b.bin"]);
    let error = served.verb("mv", "work/a/b.bin out/c.txt").run().exits(1).error();
    assert_eq!(error["code"], "file.exists");
    served.verb("mv", "work/a/b.bin out/c.txt --overwrite").run().exits(0);
    let collected = served.verb("collect", "").arg("out/**").run().exits(0).quietly().json();
    let files = collected["files"].as_array().unwrap();
    assert_eq!((files.len(), &files[0]["size_bytes"]), (1, &json!(300_000)));
    let error = served.verb("del", "out").run().exits(1).error();
    assert_eq!(error["code"], "file.not_empty");
    served.verb("del", "out --recursive").run().exits(0).prints("{}\n");
    let error = served.verb("get", "out/c.txt").run().exits(1).prints("").error();
    assert_eq!(error["code"], "file.not_found");
    let error = served.verb("get", "../etc/passwd").run().exits(2).prints("").error();
    assert_eq!(error["code"], "validation.path_escape");
}

#[test]
fn a_program_prints_and_exits_as_with_exec() {
    let Some(served) = ServedWorkspace::create("--env A=workspace --env B=workspace") else {
        return;
    };
    let script = "cat; echo $A $B; pwd; echo err >&2; exit 7";
    let run = served.run_sh("--env B=run --cwd work/sub --stdin-file -", script).fed("in\n");
    let done = run.run().exits(7);
    done.holds(done.stderr() == "err\n", "stderr");
    done.prints("in\nworkspace run\n/workspace/work/sub\n");
    for (options, script, code) in [
        ("", "kill -TERM $$", 143),
        ("--timeout-ms 200ms", "echo x; sleep 60", 124),
        ("--cpu-time-ms 100", "while :; do :; done", 124),
        ("--memory-mb 16", "exec python3 -c 'b = bytearray(1 << 27)'", 123),
    ] {
        served.run_sh(options, script).run().exits(code).quietly();
    }
    for (program, code) in [("no-such-program", 127), ("/etc/hostname", 126)] {
        let done = served.verb("run", "--").arg(program).run().exits(code).prints("");
        assert_eq!(done.error()["code"], "run.spawn_failed", "{program}");
    }
    let error = served.verb("run", "--cwd ../.. -- true").run().exits(2).prints("").error();
    assert_eq!(error["code"], "validation.path_escape");
}

#[test]
fn output_of_a_program_comes_while_it_runs() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let mut child = served.run_sh("", "echo first; cat /tmp/go; sleep 61.5").spawn();
    let mut first = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    until_running("61.5", &mut child);
    // The service ends the program when its client has gone.
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(ends_within(&mut child, Duration::from_secs(5)).code(), Some(143));
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while is_running("61.5") {
        assert!(std::time::Instant::now() < deadline, "the program goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn much_output_arrives_whole() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let script = "head -c 3000000 /dev/zero | tr '\\0' '\\033'";
    let done = served.run_sh("--stdout-bytes 4MiB", script).run().exits(0).quietly();
    let bytes = &done.output.stdout;
    assert!(bytes.len() == 3_000_000 && bytes.iter().all(|byte| *byte == 0x1b));
}

#[test]
fn output_that_is_not_text_arrives_as_it_is() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    served.verb("put", "- work/binary").fed(bytes.clone()).run().exits(0);
    let done = served.run_sh("", "echo a; cat work/binary; printf 'b\\376' >&2").run().exits(0);
    assert!(done.output.stdout == [b"a\n", bytes.as_slice()].concat());
    assert_eq!(done.output.stderr, b"b\xfe");
}

#[test]
fn a_session_is_written_to_polled_attached_and_killed() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let started = |words: &str| {
        let started = served.verb("start", words).run().exits(0).quietly().json();
        started["session_id"].as_str().unwrap().to_owned()
    };
    let cat = started("-- cat");
    let call = |verb: &str, words: &str| served.verb(verb, &cat).words(words).run();
    assert_eq!(call("write", "one --newline").exits(0).json()["written"], 4);
    let polled = call("poll", "--wait-ms 10s").exits(0).json();
    assert_eq!((&polled["output"], &polled["next_offset"]), (&json!("one"), &json!(1)));
    assert_eq!(call("state", "").exits(0).json()["status"], "running");
    assert_eq!(call("result", "").exits(1).error()["code"], "session.running");
    let attached = served.verb("attach", &cat).words("--offset 2").fed("two\n").run().exits(0);
    attached.quietly().prints("e\ntwo\n");
    assert_eq!(call("log", "--offset 1 --limit 1").exits(0).json()["output"], "two");
    assert_eq!(call("result", "").exits(0).json()["stdout"], "one\ntwo\n");
    assert_eq!(call("close", "").exits(0).stdout(), "{}\n");
    assert_eq!(call("attach", "").exits(1).error()["code"], "session.not_found");
    let sleep = started("--tty --cols 100 -- sleep 60");
    assert_eq!(served.verb("kill", &sleep).run().exits(0).json()["signal"], 15);
    served.verb("attach", &sleep).words("--readonly").run().exits(143).prints("");
    let error = served.verb("start", "-- no-such-program").run().exits(2).prints("").error();
    assert_eq!(error["code"], "run.spawn_failed");
}

#[test]
fn an_id_of_any_characters_is_only_an_id() {
    let Some(served) = ServedWorkspace::create("") else { return };
    let done = served.call("show").arg("../engine?x#y z").run().exits(1).prints("");
    let error: Value = done.error();
    assert_eq!(error["code"], "workspace.not_found");
}
