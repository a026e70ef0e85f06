//! The wall-clock limit: the answer comes within 50 ms of it, whatever the program does.

use std::time::Duration;

use cofferdam_test_support::{self as support, Program, ending};

/// The guaranteed delay.
const LATE_MAX: Duration = Duration::from_millis(50);
/// The number of attempts, of which the best counts, because the machine may be busy with something
/// else.
const ATTEMPTS: usize = 3;

/// Checks that `program`, which never ends and prints `started` first, is answered in time.
#[track_caller]
fn is_answered_in_time(wall: Duration, started: &str, program: impl Fn() -> Program) {
    let Some(host) = support::quiet_host() else { return };
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        let limited = program().limits(|limits| *limits = limits.clone().with_wall(wall));
        let (report, waited) = host.timed(limited);
        assert_eq!(ending(&report), ("timed_out", None), "{}", report.stderr.text());
        assert_eq!(report.stdout.text(), started, "the output so far is kept");
        assert!(waited >= wall, "answered {:?} early", wall - waited);
        late.push(waited - wall);
        if waited - wall <= LATE_MAX {
            return;
        }
    }
    panic!("answered late by {late:?}");
}

/// Enough for what a program does first, on a busy machine.
const SHORT: Duration = Duration::from_millis(700);

#[test]
fn a_program_that_ignores_every_signal_is_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || {
        Program::sh("trap '' TERM INT HUP QUIT XCPU; echo started; while :; do sleep 1; done")
    });
}

#[test]
fn a_program_that_stops_itself_is_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || Program::sh("echo started; kill -STOP $$"));
}

#[test]
fn a_program_that_stops_all_its_processes_is_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || {
        Program::sh("sleep 60 & sleep 60 & echo started; kill -STOP -1; kill -STOP $$")
    });
}

#[test]
fn daemons_in_sessions_of_their_own_are_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || {
        Program::sh(
            "for n in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP; sleep 60' &); done
             echo started; sleep 60",
        )
    });
}

#[test]
fn children_that_hold_the_pipes_are_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || {
        Program::sh("sleep 60 & sleep 60 & exec sh -c 'echo started; exec sleep 60'")
    });
}

#[test]
fn a_program_that_only_computes_is_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || Program::sh("echo started; while :; do :; done"));
}

#[test]
fn a_program_that_forks_endlessly_is_answered_in_time() {
    is_answered_in_time(SHORT, "started\n", || {
        Program::python(
            "import os\n\
             print('started', flush=True)\n\
             while True:\n\
             \u{20}   try: os.fork()\n\
             \u{20}   except OSError: pass\n",
        )
    });
}

#[test]
fn two_hundred_and_fifty_processes_are_answered_in_time() {
    is_answered_in_time(Duration::from_millis(1500), "250\n", || {
        Program::python(
            "import os, time\n\
             for n in range(249):\n\
             \u{20}   if os.fork() == 0: time.sleep(60)\n\
             print(n + 2, flush=True)\n\
             time.sleep(60)\n",
        )
    });
}

#[test]
fn a_wall_limit_of_zero_is_answered_at_once() {
    let Some(host) = support::quiet_host() else { return };
    let report = host.run(
        Program::sh("sleep 60").limits(|limits| *limits = limits.clone().with_wall(Duration::ZERO)),
    );
    assert_eq!(ending(&report), ("timed_out", None));
    assert!(report.timings.run < Duration::from_secs(1), "{:?}", report.timings);
}
