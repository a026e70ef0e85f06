//! Orders to a running program, and its standard input while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::sync::input_queue::{InputError, InputQueue};
use cofferdam_core::sync::run_control::{ControlError, RunControl, TerminalSize};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{NotStarted, Outcome, RunReport, StdinSource};
use cofferdam_test_support::live::Live;
use cofferdam_test_support::processes::{eventually, processes_of};
use cofferdam_test_support::{self as support, Host, MIB, MountedFiles, Program, ending};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts `script` under a controller, and waits until it has printed `up`.
fn controlled(host: &Host, script: &str) -> (RunControl, Live) {
    let control = RunControl::new().unwrap();
    let mut run = host.start(Program::sh(script).control(&control));
    run.wait_for("up\n");
    (control, run)
}

#[test]
fn the_start_is_told_while_the_program_runs_and_a_failed_exec_with_its_errno() {
    let Some(host) = support::host() else { return };
    let started = |argv: &[&str]| {
        let control = RunControl::new().unwrap();
        let run = host.start(Program::new(argv).control(&control));
        (control.wait_started(Deadline::after(PATIENCE)), control, run)
    };
    let (start, control, run) = started(&["/bin/sleep", "60"]);
    assert_eq!(start, Some(Ok(())));
    control.signal(libc::SIGKILL).unwrap();
    assert_eq!(run.join().outcome, Outcome::Signaled { signal: libc::SIGKILL });
    for (program, errno) in [("/absent", libc::ENOENT), ("/etc/passwd", libc::EACCES)] {
        let (start, control, run) = started(&[program]);
        assert_eq!(start, Some(Err(NotStarted::Exec { errno })), "{program}");
        assert!(run.result().is_err());
        assert_eq!(control.signal(libc::SIGTERM), Err(ControlError::Ended));
    }
    let (start, _, run) = {
        let control = RunControl::new().unwrap();
        let run = host.start(Program::sh(":").workdir("/absent").control(&control));
        (control.wait_started(Deadline::after(PATIENCE)), control, run)
    };
    assert!(matches!(start, Some(Err(NotStarted::Setup(_)))), "{start:?}");
    assert!(run.result().is_err());
}

#[test]
fn a_signal_reaches_the_main_process_and_no_other() {
    let Some(host) = support::host() else { return };
    let script = "(trap 'echo child' USR1; while :; do sleep 0.05; done) & \
                  trap 'echo main; exit 7' USR1; echo up; while :; do sleep 0.05; done";
    let (control, run) = controlled(&host, script);
    control.signal(libc::SIGUSR1).unwrap();
    let report = run.join();
    assert_eq!(ending(&report), ("exited", Some(7)));
    assert_eq!(report.stdout.text(), "up\nmain\n");
    assert_eq!(control.signal(libc::SIGUSR1), Err(ControlError::Ended));
}

#[test]
fn a_signal_that_does_not_exist_is_refused_and_changes_nothing() {
    let Some(host) = support::host() else { return };
    let (control, run) = controlled(&host, "echo up; read line; exit 3");
    assert_eq!(control.signal(1000), Err(ControlError::Refused(libc::EINVAL)));
    assert_eq!(control.resize(TerminalSize { columns: 1, rows: 1 }), Err(ControlError::NoTerminal));
    assert_eq!(run.finish().outcome, Outcome::Exited { code: 3 });
}

fn terminated(host: &Host, script: &str, grace: Duration) -> (RunReport, Duration) {
    let (control, run) = controlled(host, script);
    let (uid, began) = (run.host_uid, Instant::now());
    control.terminate(grace).unwrap();
    let report = run.join();
    assert_eq!(processes_of(uid), [""; 0]);
    (report, began.elapsed())
}

#[test]
fn a_program_that_ends_by_sigterm_takes_its_sandbox_along() {
    let Some(host) = support::host() else { return };
    for script in [
        "echo up; exec sleep 60",
        "setsid sh -c 'trap \"\" TERM HUP; sleep 60' & echo up; exec sleep 60",
        "(trap '' TERM; sleep 60; sleep 60) & echo up; exec sleep 60",
    ] {
        let (report, took) = terminated(&host, script, Duration::from_secs(60));
        assert_eq!(report.outcome, Outcome::Signaled { signal: libc::SIGTERM }, "{script}");
        assert!(took < Duration::from_secs(30), "{script}: {took:?}");
    }
    let own = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done";
    let (report, _) = terminated(&host, own, Duration::from_secs(60));
    assert_eq!(ending(&report), ("exited", Some(5)));
    assert_eq!(report.stdout.text(), "up\nbye\n");
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_the_grace() {
    let Some(host) = support::host() else { return };
    let grace = Duration::from_millis(300);
    for script in ["trap '' TERM; echo up; sleep 60; sleep 60", "echo up; kill -STOP $$; sleep 60"]
    {
        let (report, took) = terminated(&host, script, grace);
        assert_eq!(report.outcome, Outcome::Cancelled, "{script}");
        assert!(took >= grace, "{script}: {took:?}");
    }
}

#[test]
fn a_second_grace_shortens_the_first_and_never_extends_it() {
    let Some(host) = support::host() else { return };
    let (control, run) = controlled(&host, "trap '' TERM; echo up; sleep 60; sleep 60");
    let began = Instant::now();
    control.terminate(Duration::from_secs(3600)).unwrap();
    control.terminate(Duration::ZERO).unwrap();
    let late = control.terminate(Duration::from_secs(3600));
    assert!(matches!(late, Ok(()) | Err(ControlError::Ended)), "{late:?}");
    assert_eq!(run.join().outcome, Outcome::Cancelled);
    assert!(began.elapsed() < PATIENCE);
}

/// A program that counts in a file, and the file's size.
fn counting(host: &Host) -> (RunControl, Live, impl Fn() -> u64) {
    let shared = tempfile::tempdir().unwrap();
    let file = shared.path().join("count");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let control = RunControl::new().unwrap();
    let script = "setsid sh -c 'while :; do printf x >>/count; done' & echo up; read line";
    let program = Program::sh(script).bind(&file, "/count", false).control(&control);
    let mut run = host.start(program);
    run.wait_for("up\n");
    (control, run, move || {
        let _kept = &shared;
        std::fs::metadata(&file).unwrap().len()
    })
}

#[test]
fn a_frozen_sandbox_does_nothing_until_it_is_thawed() {
    let Some(host) = support::host() else { return };
    let (control, run, count) = counting(&host);
    assert!(eventually(PATIENCE, || count() > 0));
    control.freeze(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
    let frozen = count();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(count(), frozen);
    assert_eq!(control.freeze(PATIENCE, PATIENCE), Err(ControlError::Busy));
    control.thaw().unwrap();
    assert!(eventually(PATIENCE, || count() > frozen));
    assert_eq!(control.thaw(), Err(ControlError::TimedOut), "it is not frozen");
    run.finish();
}

#[test]
fn a_sandbox_that_nothing_thaws_goes_on_by_itself() {
    let Some(host) = support::host() else { return };
    let (control, run, count) = counting(&host);
    assert!(eventually(PATIENCE, || count() > 0));
    control.freeze(Duration::from_secs(10), Duration::from_millis(200)).unwrap();
    let frozen = count();
    assert!(eventually(PATIENCE, || count() > frozen));
    assert_eq!(control.thaw(), Err(ControlError::TimedOut));
    run.finish();
}

#[test]
fn a_frozen_sandbox_dies_at_its_time_limit_by_a_kill_and_by_sigterm() {
    let Some(host) = support::host() else { return };
    let end = |wall: Duration, how: &dyn Fn(&RunControl, Live) -> RunReport| {
        let control = RunControl::new().unwrap();
        let limited = Program::sh("sleep 60 & echo up; exec sleep 60").control(&control);
        let mut run = host.start(limited.limits(|limits| limits.wall = wall));
        run.wait_for("up\n");
        control.freeze(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
        let (uid, began) = (run.host_uid, Instant::now());
        let report = how(&control, run);
        assert_eq!(processes_of(uid), [""; 0]);
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        report.outcome.word()
    };
    let long = Duration::from_secs(60);
    assert_eq!(end(Duration::from_secs(4), &|_, run| run.join()), "timed_out");
    assert_eq!(end(long, &|_, run| run.cancel()), "cancelled");
    let ended = end(long, &|control, run| {
        control.terminate(long).unwrap();
        run.join()
    });
    assert_eq!(ended, "signaled");
}

fn fed(host: &Host, script: &str) -> (Arc<InputQueue>, Live) {
    let queue = Arc::new(InputQueue::new().unwrap());
    let program = Program::sh(script).stdin(StdinSource::Queue(Arc::clone(&queue)));
    (queue, host.start_with_own_stdin(program))
}

#[test]
fn a_program_reads_what_is_queued_while_it_runs_until_the_queue_is_closed() {
    let Some(host) = support::host() else { return };
    let (queue, mut run) = fed(&host, "while read line; do echo got $line; done; echo end");
    for line in ["one", "two", "three"] {
        queue.write(format!("{line}\n").as_bytes()).unwrap();
        run.wait_for(&format!("got {line}\n"));
    }
    queue.close();
    assert_eq!(run.join().stdout.text(), "got one\ngot two\ngot three\nend\n");
    assert_eq!(queue.write(b"x"), Err(InputError::Closed));
}

#[test]
fn a_mebibyte_stays_unread_and_one_byte_more_is_refused() {
    let Some(host) = support::host() else { return };
    let script = "echo up; while [ ! -e /tmp/go ]; do sleep 0.01; done";
    let (queue, mut run) = fed(&host, &format!("({script}) </dev/null & wait; wc -c"));
    run.wait_for("up\n");
    queue.write(&vec![b'x'; 1 << 20]).unwrap();
    for _ in 0..3 {
        assert_eq!(queue.write(b"y"), Err(InputError::Full { unread_bytes: 1 << 20 }));
    }
    assert_eq!(run.cancel().outcome, Outcome::Cancelled);
    assert_eq!(queue.write(b"y"), Err(InputError::Gone));
    // The control: a program that reads makes room for more than fits at once.
    let (queue, run) = fed(&host, "wc -c");
    for _ in 0..8 {
        assert!(eventually(PATIENCE, || queue.write(&vec![b'x'; 1 << 19]).is_ok()));
    }
    queue.close();
    assert_eq!(run.join().stdout.text().trim(), (4 << 20).to_string());
}

#[test]
fn input_for_a_program_that_closed_its_end_is_refused_while_it_runs() {
    let Some(host) = support::host() else { return };
    let (queue, mut run) =
        fed(&host, "exec <&-; echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done");
    run.wait_for("up\n");
    assert!(eventually(PATIENCE, || queue.write(b"x") == Err(InputError::Gone)));
    run.cancel();
}

#[test]
fn dropped_output_is_counted_exactly_and_neither_blocks_nor_ends_the_program() {
    let Some(host) = support::host() else { return };
    let script = "head -c 60000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo done >&2; exit 3";
    let report = host.run(Program::sh(script).dropping(100_000, 2_999_999));
    assert_eq!(ending(&report), ("exited", Some(3)));
    let (stdout, stderr) = (&report.stdout, &report.stderr);
    assert_eq!((stdout.bytes.len(), stdout.bytes_total), (100_000, 60_000_000));
    assert_eq!((stderr.bytes.len(), stderr.bytes_total), (2_999_999, 3_000_005));
    assert_eq!((stdout.truncated, stderr.truncated), (true, true));
    let report = host.run(Program::sh("printf abc; printf abcd >&2").dropping(3, 3));
    assert_eq!((report.stdout.truncated, report.stderr.truncated), (false, true));
    assert_eq!((report.stdout.text(), report.stderr.text()), ("abc".into(), "abc".into()));
}

#[test]
fn the_output_of_a_program_that_is_killed_is_counted_too() {
    let Some(host) = support::host() else { return };
    let limited = Program::sh("exec yes").limits(|limits| limits.wall = Duration::from_millis(300));
    let report = host.run(limited.dropping(1000, 1000));
    assert_eq!(ending(&report), ("timed_out", None));
    assert_eq!((report.stdout.bytes.len(), report.stdout.truncated), (1000, true));
    assert!(report.stdout.bytes_total > 1000);
}

/// As in `wall.rs`, the best of three attempts counts.
#[test]
fn at_the_time_limit_everything_is_dead_within_50_ms_of_a_program_without_children() {
    let Some(host) = support::quiet_host() else { return };
    let files = MountedFiles::new(&host, "/workspace", MIB);
    let wall = Duration::from_millis(400);
    let late = |script: &str| {
        let program = || Program::python(script).limits(|limits| limits.wall = wall);
        let attempt = |_| {
            let began = Instant::now();
            let report = host.run_over(&files, program());
            let took = began.elapsed().saturating_sub(report.timings.prepare);
            assert_eq!(processes_of(files.host_id().id()), [""; 0], "all is dead by the answer");
            assert_eq!(ending(&report), ("timed_out", None), "{}", report.stderr.text());
            took.saturating_sub(wall)
        };
        (0..3).map(attempt).min().unwrap()
    };
    let alone = late("import time; time.sleep(60)");
    let forking = late(
        "import os, time\n\
         while True:\n\
         \u{20}   try:\n\
         \u{20}       if os.fork() == 0: os.setsid()\n\
         \u{20}   except OSError: time.sleep(0.001)\n",
    );
    assert!(forking <= alone + Duration::from_millis(50), "{forking:?}, alone {alone:?}");
}
