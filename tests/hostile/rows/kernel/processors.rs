//! Core dumps and scheduling priorities.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use cofferdam_test_server::client::{Client, post};
use cofferdam_test_server::host::HOST_UIDS;
use cofferdam_test_server::service::Service;
use serde_json::json;

use super::answers::{Expected, OK, answers_told};
use crate::Unexercised;
use crate::observe::observed;
use crate::probe::Probe;
use crate::target::Target;

const SIGNALS: &[&str] = &[
    "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS", "SIGXCPU",
    "SIGXFSZ",
];

pub fn crashes(target: &Target) -> Result<(), Unexercised> {
    let seen = target.observe(&Probe::python_with_native("crash_and_look", "crash"));
    assert_eq!(seen["left"], json!([]), "left in the run");
    let pattern = seen["pattern"].as_str().unwrap().trim();
    let is_pipe = pattern.starts_with('|');
    // A program of the host receives the dump, and the kernel reports it as written.
    let end: &[&str] = if is_pipe { &["crashed", "dumped"] } else { &["crashed"] };
    let mut expected = Expected::default()
        .all(&["raise-limit", "raise-limit-for-good"], &["EPERM"])
        .all(&["limit"], &["none"]);
    for signal in SIGNALS {
        expected = expected.each(&format!("{signal}-in-"), &["/workspace", "/tmp"], end);
    }
    expected.hold(answers_told(&seen));
    if target.own().is_ok() {
        let of_pattern = Path::new(pattern).parent().and_then(Path::to_str).unwrap_or("/");
        for directory in
            ["/", "/tmp", "/var/tmp", "/var/crash", of_pattern, env!("CARGO_MANIFEST_DIR")]
        {
            assert_eq!(tenants_files(directory), 0, "core files in {directory}");
        }
    }
    if is_pipe {
        return Err(Unexercised(format!(
            "core_pattern is {pattern:?}, which no sandbox can disable"
        )));
    }
    Ok(())
}

/// A core file belongs to the user of the crashed process.
fn tenants_files(directory: &str) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(is_core_of_tenant).count()
}

fn is_core_of_tenant(metadata: &fs::Metadata) -> bool {
    metadata.is_file() && HOST_UIDS.contains(&metadata.uid())
}

pub fn priorities(target: &Target) -> Result<(), Unexercised> {
    let probe = Probe::c("scheduling");
    expected_priorities().hold(answers_told(&target.observe(&probe)));
    if let Ok(own) = target.own() {
        // The server may raise its priority, but its runs must not.
        let service = own.another().start();
        favour(&service);
        let body = probe.body(target.slug()).to_string();
        let answer = Client::connect(service.address).ask(post("", body));
        expected_priorities().hold(answers_told(&observed(&answer)));
    }
    Ok(())
}

fn expected_priorities() -> Expected {
    const DENIED: &[&str] = &["EPERM", "EACCES", "ENOSYS"];
    Expected::default()
        .all(&["nice-at-start"], OK)
        .all(&["policy-at-start", "ioprio-at-start"], &["other"])
        .each("raise-limit-", &["nice", "rtprio"], DENIED)
        .each("limit-", &["nice", "rtprio"], &["none"])
        .each("nice-", &["process", "one", "group", "user", "attr", "init", "back"], DENIED)
        .all(&["fifo", "rr", "fifo-reset", "fifo-attr", "deadline"], DENIED)
        .each("ioprio-", &["process", "group", "user", "init"], DENIED)
        .all(&["affinity-beyond"], &["EINVAL", "EPERM"])
        .all(&["affinity"], &["same"])
        .all(&["affinity-init"], DENIED)
        .all(&["batch", "nicer"], OK)
}

/// Raises the priority of every thread of a server, and the limits that allow more.
fn favour(service: &Service) {
    let pid = service.pid().to_string();
    let raised =
        Command::new("prlimit").args(["--pid", &pid, "--nice=40:40", "--rtprio=99:99"]).output();
    if !raised.unwrap().status.success() {
        // Without CAP_SYS_RESOURCE this test cannot raise the limits.
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let priorities = limits.lines().filter(|line| line.contains("priority"));
        for line in priorities {
            let none = line.split_whitespace().rev().take(2).all(|limit| limit == "0");
            assert!(none, "cannot be raised and is not zero: {line}");
        }
    }
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap();
        run("renice", &["-n", "-5", "-p", &thread]);
        run("ionice", &["-c", "1", "-n", "7", "-p", &thread]);
    }
}

#[track_caller]
fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}
