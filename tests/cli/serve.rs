//! `cofferdam serve`: its start, its drain and its configuration errors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::support::{Call, cofferdam, ends_within, langs, limited, pid_of};

/// A running server, its address and its log.
struct Serving {
    child: Child,
    address: String,
    ready: String,
    log: BufReader<ChildStderr>,
}

impl Serving {
    fn start(call: Call) -> Self {
        let mut child = call.spawn();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut serving = Self { child, address: String::new(), ready: String::new(), log };
        while serving.address.is_empty() {
            serving.ready.clear();
            assert_ne!(serving.log.read_line(&mut serving.ready).unwrap(), 0, "the server ended");
            if let Some((_, rest)) = serving.ready.split_once("listening on ") {
                serving.address = rest.split(';').next().unwrap_or_default().to_owned();
            }
        }
        serving
    }

    /// Posts `body` to /run; returns the whole response.
    fn run(&self, body: &str) -> String {
        self.ask(&format!(
            "POST /run HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len(),
        ))
    }

    fn ask(&self, request: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill(pid_of(&self.child), signal).unwrap();
        ends_within(&mut self.child, Duration::from_secs(5)).code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has already ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve() -> Call {
    cofferdam("serve --addr 127.0.0.1:0 --langs").arg(langs())
}

#[test]
fn a_server_logs_that_it_is_ready_answers_and_drains() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut serving = Serving::start(serve());
        for control in [r#""seccomp":"default""#, r#""disk":"tmpfs""#, "namespaces"] {
            assert!(serving.ready.contains(control), "{}", serving.ready);
        }
        let health = serving.ask("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("\r\n\r\nok\n"), "{health}");
        let body = r#"{"lang_slug":"python","solution_text":"def solution(a):\n  return a","asserts":"{\"arguments\":[[7]]}"}"#;
        let run = serving.run(body);
        assert!(
            run.contains(r#"{"exit_code":0,"stdout":"[{\"type\": \"result\", \"value\": 7"#),
            "{run}"
        );
        assert_eq!(serving.signal(signal), Some(0));
        let mut rest = String::new();
        serving.log.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("ERROR"), "{rest}");
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let mut first = Serving::start(serve());
    let second = cofferdam("serve --addr").arg(&first.address).arg("--langs").arg(langs());
    second.env("RUST_LOG", "error").run().exits(1).complains("address already in use");
    assert_eq!(first.signal(Signal::SIGTERM), Some(0));
}

#[test]
fn all_problems_of_the_configuration_are_reported_at_once() {
    let call = serve().env("RUN_CONCURRENCY", "none").env("PORT", "x").env("RUN_MEMORY_MAX", "0");
    let done = call.run().exits(2);
    let stderr = done.stderr();
    for name in ["RUN_CONCURRENCY", "PORT", "RUN_MEMORY_MAX"] {
        let lines =
            stderr.lines().filter(|line| line.starts_with(&format!("cofferdam: {name}: "))).count();
        done.holds(lines == 1, name);
    }
    done.holds(stderr.lines().count() == 3, "three lines");

    let call = cofferdam("serve --addr nowhere --langs /nonexistent --rootfs /etc/hostname");
    let done = call.env("PORT", "x").run().exits(2);
    let stderr = done.stderr();
    for name in ["PORT", "--addr", "--langs: /nonexistent", "--rootfs: /etc/hostname"] {
        let is_reported =
            stderr.lines().any(|line| line.starts_with(&format!("cofferdam: {name}: ")));
        done.holds(is_reported, name);
    }
    done.holds(stderr.lines().count() == 4, "four lines");
}

/// As the entry point of a one-language image.
#[test]
fn without_a_command_and_a_terminal_it_serves_the_current_workspace() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("Makefile"), ".PHONY: test\ntest:\n\techo here\n")
        .unwrap();
    let mut serving = Serving::start(cofferdam("").within(directory.path()).env("PORT", "0"));
    let answer = serving.run(r#"{"lang_slug":"python","solution_text":""}"#);
    assert!(answer.ends_with(r#"{"exit_code":0,"stdout":"here\n","stderr":""}"#), "{answer}");
    assert_eq!(serving.signal(Signal::SIGTERM), Some(0));
}

#[test]
fn a_single_workspace_that_does_not_resolve_prevents_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let call = cofferdam("serve --addr 127.0.0.1:0 --workspace .").within(directory.path());
    call.run().exits(2).complains("workspace: no Makefile in");
}

#[test]
fn the_store_is_not_visible_to_a_run() {
    // Runs see other directories there.
    let store = tempfile::tempdir_in("/opt").unwrap();
    std::fs::write(store.path().join("mark"), "seen").unwrap();
    std::fs::set_permissions(store.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let solution =
        format!("def solution(a):\\n  return open('{}/mark').read()", store.path().display());
    let body = format!(
        r#"{{"lang_slug":"python","solution_text":"{solution}","asserts":"{{\"arguments\":[[7]]}}"}}"#
    );
    for (call, shown) in [(serve(), true), (serve().arg("--store-dir").arg(store.path()), false)] {
        let mut serving = Serving::start(call);
        let answer = serving.run(&body);
        assert_eq!(answer.contains(r#"\"value\": \"seen\""#), shown, "{answer}");
        assert_eq!(serving.signal(Signal::SIGTERM), Some(0));
    }
}

#[test]
fn a_resource_limit_that_is_too_low_prevents_the_start_and_is_named() {
    for (options, words) in [
        ("-n 64", "open files: the hard limit (ulimit -Hn, LimitNOFILE=) is 64, and at least"),
        ("-f 100", "file size: the hard limit (ulimit -Hf, LimitFSIZE=) is 102400 bytes, and"),
        ("-f 1024", "file size: the hard limit (ulimit -Hf, LimitFSIZE=) is 1048576 bytes, and"),
    ] {
        let call = limited(options, "serve --addr 127.0.0.1:0 --langs").arg(langs());
        let done = call.env("RUST_LOG", "error").run().exits(1);
        done.complains(words);
    }
}

#[test]
fn the_soft_file_size_limit_is_raised_to_the_hard_limit() {
    let mut serving =
        Serving::start(limited("-Sf 100", "serve --addr 127.0.0.1:0 --langs").arg(langs()));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.child.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
    let limits: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(limits[0], limits[1], "{line}");
    assert_eq!(serving.signal(Signal::SIGTERM), Some(0));
}

#[test]
fn a_store_path_with_a_loop_of_links_is_reported() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    std::os::unix::fs::symlink(&store, &store).unwrap();
    for path in [store.clone(), store.join("inner")] {
        let call = serve().arg("--store-dir").arg(&path);
        let done = call.env("RUST_LOG", "error").run().exits(2);
        done.complains(&format!("--store-dir: {}: too many symbolic links", path.display()));
    }
}
