//! How runs end and how that is reported, and why some do not start.

use std::fs;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_core::{NotStarted, Outcome};
use cofferdam_test_support::{self as support, Host, Program, ending, lines_of};

#[test]
fn an_exit_code_is_reported_as_a_parent_sees_it() {
    let Some(host) = support::host() else { return };
    for (code, seen) in [(0, 0), (1, 1), (255, 255), (256, 0), (259, 3), (-1, 255)] {
        let report = host.run(Program::python(&format!("import os; os._exit({code})")));
        assert_eq!(report.outcome, Outcome::Exited { code: seen }, "exit {code}");
    }
}

#[test]
fn a_signal_is_reported_with_the_exit_code_of_a_shell() {
    let Some(host) = support::host() else { return };
    for signal in [libc::SIGTERM, libc::SIGSEGV, libc::SIGKILL, libc::SIGABRT, libc::SIGPIPE] {
        let report = host.run(Program::sh(&format!("kill -{signal} $$")));
        assert_eq!(report.outcome, Outcome::Signaled { signal });
        let shell_code = u8::try_from(128 + signal).unwrap();
        assert_eq!(ending(&report), ("signaled", Some(shell_code)));
    }
}

#[test]
fn a_child_in_the_background_neither_delays_the_answer_nor_outlives_it() {
    let Some(host) = support::host() else { return };
    let slot = host.host_id();
    for script in [
        "sleep 60 & echo done",
        "setsid sleep 60 & echo done",
        "(trap '' TERM HUP; (sleep 60 &) &) ; echo done",
    ] {
        let report = host.try_run_as(&slot, Program::sh(script)).unwrap();
        assert_eq!(lines_of(&report), ["done"], "{script}");
        assert!(report.timings.run < Duration::from_secs(10), "{:?}", report.timings);
        assert_eq!(support::processes::processes_of(slot.id()), [""; 0], "{script}");
    }
}

#[test]
fn all_output_before_the_end_is_captured() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh("head -c 300000 /dev/zero; head -c 60000 /dev/zero >&2"));
    assert_eq!(report.stdout.bytes.len(), 300_000);
    assert_eq!(report.stderr.bytes.len(), 60_000);
}

#[test]
fn a_raised_token_ends_the_run() {
    let Some(host) = support::host() else { return };
    let mut run = host.start(Program::sh("trap '' TERM; echo up; sleep 60; sleep 60"));
    run.wait_for("up\n");
    let began = Instant::now();
    let report = run.cancel();
    assert_eq!(ending(&report), ("cancelled", None));
    assert_eq!(report.stdout.text(), "up\n");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_token_raised_before_the_start_ends_the_run() {
    let Some(host) = support::host() else { return };
    let program = Program::sh("sleep 60");
    program.cancel_token().cancel();
    match host.try_run(program) {
        Ok(report) => assert_eq!(report.outcome, Outcome::Cancelled),
        Err(failure) => assert_eq!(
            failure.to_string(),
            "sandbox: start init: cancelled during set-up",
            "it had not begun yet"
        ),
    }
}

/// Runs `script`, calls `leave` on the client's socket once it has printed `up`, and returns how
/// long the run took to end after that.
fn left_by_client(
    host: &Host,
    script: &str,
    leave: impl FnOnce(&UnixStream),
) -> (Outcome, Duration) {
    let (client, ours) = UnixStream::pair().unwrap();
    let mut run = host.start(Program::sh(script).client(ours.into()));
    run.wait_for("up\n");
    let left = Instant::now();
    leave(&client);
    let report = run.join();
    (report.outcome, left.elapsed())
}

#[test]
fn a_disconnect_ends_the_run_within_200_ms() {
    let Some(host) = support::quiet_host() else { return };
    let attempt = |_| {
        let shut = |client: &UnixStream| client.shutdown(Shutdown::Both).unwrap();
        let (outcome, took) = left_by_client(&host, "echo up; sleep 60", shut);
        assert_eq!(outcome, Outcome::Cancelled);
        took
    };
    let took: Vec<Duration> = (0..3).map(attempt).collect();
    assert!(took.iter().any(|took| *took <= Duration::from_millis(200)), "{took:?}");
}

#[test]
fn a_half_closed_client_has_100_ms_to_get_its_answer() {
    let Some(host) = support::quiet_host() else { return };
    let half = |client: &UnixStream| client.shutdown(Shutdown::Write).unwrap();
    // One of three attempts, since on a busy machine the program itself may take longer than the
    // grace period.
    let answered = (0..3)
        .any(|_| left_by_client(&host, "echo up; exit 3", half).0 == Outcome::Exited { code: 3 });
    assert!(answered, "a short run was never answered");
    let attempt = |_| {
        let (outcome, took) = left_by_client(&host, "echo up; sleep 60", half);
        assert_eq!(outcome, Outcome::Cancelled);
        assert!(took >= Duration::from_millis(100), "no grace: {took:?}");
        took
    };
    let took: Vec<Duration> = (0..3).map(attempt).collect();
    assert!(took.iter().any(|took| *took <= Duration::from_millis(200)), "{took:?}");
}

#[test]
fn a_connected_client_changes_nothing() {
    let Some(host) = support::host() else { return };
    let (client, ours) = UnixStream::pair().unwrap();
    let report = host.run(Program::sh("sleep 0.3; exit 4").client(ours.into()));
    assert_eq!(report.outcome, Outcome::Exited { code: 4 });
    drop(client);
}

#[track_caller]
fn setup_failure(host: &Host, program: Program) -> String {
    match host.try_run(program) {
        Err(failure @ NotStarted::Setup(_)) => failure.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sandbox_that_cannot_be_created_names_the_step_and_the_errno() {
    let Some(host) = support::host() else { return };
    let program = || Program::sh("echo started");
    let table = [
        (program().workdir("/absent"), "sandbox: workdir /absent: ENOENT"),
        (program().workdir("/etc/passwd"), "sandbox: workdir /etc/passwd: ENOTDIR"),
        (program().bind(Path::new("/absent"), "/there", true), "sandbox: bind /absent: ENOENT"),
        (
            program().bind(Path::new("/usr"), "/dev/null/there", true),
            "sandbox: make /dev/null/there: ENOTDIR",
        ),
        (program().template(Path::new("/absent")), "sandbox: read workspace: ENOENT"),
    ];
    for (program, failure) in table {
        assert_eq!(setup_failure(&host, program), failure);
    }
}

#[test]
fn a_failure_leaves_no_process_and_the_next_run_succeeds() {
    let Some(host) = support::host() else { return };
    let slot = host.host_id();
    for _ in 0..3 {
        assert!(host.try_run_as(&slot, Program::sh("").workdir("/absent")).is_err());
        assert_eq!(support::processes::processes_of(slot.id()), [""; 0]);
    }
    let report = host.try_run_as(&slot, Program::sh("echo well")).unwrap();
    assert_eq!(lines_of(&report), ["well"]);
}

#[test]
fn arguments_of_any_size_are_passed_or_fail_with_the_kernels_error() {
    let Some(host) = support::host() else { return };
    let with =
        |bytes| host.try_run(Program::new(&["/bin/sh", "-c", "echo ${#0}", &"x".repeat(bytes)]));
    assert_eq!(lines_of(&with(100_000).unwrap()), ["100000"]);
    assert_eq!(with(200_000).unwrap_err(), NotStarted::Exec { errno: libc::E2BIG });
    let refused = with(10_000_000).unwrap_err().to_string();
    assert!(refused.starts_with("sandbox: plan: "), "{refused}");
    let many: Vec<String> = (0..20_000).map(|n| format!("argument {n}")).collect();
    let argv: Vec<&str> = ["/bin/sh", "-c", "echo $#", "sh"]
        .into_iter()
        .chain(many.iter().map(String::as_str))
        .collect();
    assert_eq!(lines_of(&host.run(Program::new(&argv))), ["20000"]);
}

#[test]
fn a_program_that_cannot_be_executed_is_reported_with_its_errno() {
    let Some(host) = support::host() else { return };
    let template = tempfile::tempdir().unwrap();
    for (name, mode) in [("plain", 0o644), ("no-format", 0o755)] {
        let path = template.path().join(name);
        fs::write(&path, "no format the kernel knows\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for (program, errno) in [
        ("/absent", libc::ENOENT),
        ("absent", libc::ENOENT),
        ("/etc/passwd/below", libc::ENOTDIR),
        ("/usr/bin", libc::EACCES),
        ("./plain", libc::EACCES),
        ("./no-format", libc::ENOEXEC),
    ] {
        let failure = host.try_run(Program::new(&[program]).template(template.path()));
        // A search in the path reports "not found" or "not allowed", like execvp.
        let errno = if errno == libc::ENOTDIR { libc::ENOENT } else { errno };
        assert_eq!(failure.unwrap_err(), NotStarted::Exec { errno }, "{program}");
    }
}
