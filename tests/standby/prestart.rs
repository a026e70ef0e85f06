//! A program that is started ahead of its run: the run is its own all the same, and a program that
//! does not get ready, or lies about it, costs no run.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Answer, solution_within};
use cofferdam_test_server::host::inits;
use cofferdam_test_server::prestart::metric;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace};

use crate::ready::PATIENCE;

/// Reports that it waits, waits for the end of its input, and goes on as the run. What the run finds
/// in `STATE` was done ahead.
const WAITS: &str = "export STATE=warm; echo ready; while read line; do :; done; exec sh ./*/[sS]olution.* </dev/null";
/// Prints where it runs.
const STATE: &str = "echo ${STATE:-cold}";
/// Runs posted at once.
const BURST: usize = 8;

/// A server whose workspace runs the shell, and starts `prestart` ahead.
fn prestarting(prestart: &str) -> Setup {
    let prestart = prestart.replace('$', "$$");
    let makefile =
        format!(".PHONY: test prestart\ntest:\n\t{RUN_SOLUTION}\nprestart:\n\t{prestart}\n");
    Setup::of(Workspace::empty().with("Makefile", &makefile)).env("STANDBY_MAX", "2")
}

#[track_caller]
fn wait_metric(service: &Service, name: &str, least: f64) {
    wait_until(&format!("{name} of {least}"), PATIENCE, || metric(service, name) >= least);
}

/// Runs `script` in a program that was started ahead.
#[track_caller]
fn run_warm(service: &Service, timeout: &str, script: &str) -> Answer {
    wait_metric(service, "boxes_ready", 1.0);
    let before = metric(service, "boxes_used_total");
    let answer = service.post(&solution_within(timeout, script));
    assert!(metric(service, "boxes_used_total") > before, "{answer:?}");
    answer
}

fn number(answer: &Answer, header: &str) -> u64 {
    answer.header(header).unwrap().parse().unwrap()
}

#[test]
fn a_run_goes_on_in_a_program_that_was_started_ahead() {
    let service = prestarting(WAITS).start();
    assert_eq!(service.run(STATE).stdout(), "cold\n");
    for round in 0..3 {
        let script = format!("{STATE}; echo {round} >&2; ls check; cat; exit {round}");
        let answer = run_warm(&service, "10s", &script);
        let finished = answer.finished();
        assert_eq!(finished.stdout, "warm\nsolution.py\n", "{finished:?}");
        assert_eq!((finished.stderr, finished.exit_code), (format!("{round}\n"), Some(round)));
    }
    let status = service.get("/status").body;
    assert!(status.contains(r#""prestart":{"ready":{"#), "{status}");
}

#[test]
fn a_program_started_ahead_has_the_walls_of_a_run_and_nothing_of_another_run() {
    let service = prestarting(WAITS).start();
    let see = "grep -E '^(Seccomp|NoNewPrivs|CapEff|Uid)' /proc/self/status; ls /tmp; \
               readlink /proc/self/fd/0; cut -c-10 /proc/self/uid_map; umask; pwd; ls -a . check; \
               echo secret >/tmp/mine; echo secret >check/mine";
    let cold = service.run(see).stdout();
    for _ in 0..2 {
        assert_eq!(run_warm(&service, "10s", see).stdout(), cold);
    }
}

#[test]
fn limits_of_time_count_from_the_release() {
    let busy = format!("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1; {WAITS}");
    let service = prestarting(&busy).env("STANDBY_MAX", "1").start();
    assert_eq!(service.run(STATE).stdout(), "cold\n");
    let answer = run_warm(&service, "10s", STATE);
    assert_eq!(answer.stdout(), "warm\n");
    assert!(number(&answer, "x-run-wall-ms") < 900, "{answer:?}");
    let before_ms = metric(&service, "cpu_seconds_total") * 1000.0;
    assert!(before_ms > 50.0, "the program used {before_ms} ms ahead of the run");
    assert!((number(&answer, "x-run-cpu-ms") as f64) < before_ms, "{answer:?}");
    // All of the time that a run has, although the program is older.
    let answer = run_warm(&service, "1s", "sleep 0.6; echo in time");
    assert_eq!(answer.stdout(), "in time\n");
    let answer = run_warm(&service, "1s", "sleep 60");
    assert_eq!(answer.header("x-run-outcome"), Some("timed_out"), "{answer:?}");
    assert!((1000..1900).contains(&number(&answer, "x-run-wall-ms")), "{answer:?}");
    let answer = run_warm(&service, "20s", "ulimit -St; ulimit -Ht");
    let seconds = answer.stdout();
    let seconds: Vec<u64> = seconds.lines().map(|line| line.parse().unwrap()).collect();
    // Its own seconds, and those that were used before, in whole ones.
    assert!((20..=29).contains(&seconds[0]) && seconds[1] == seconds[0] + 1, "{seconds:?}");
    let answer = run_warm(&service, "20s", "ulimit -St 1; while :; do :; done");
    assert_eq!(answer.header("x-run-outcome"), Some("cpu_limit"), "{answer:?}");
}

/// Posts runs while `prestart` is tried; each has its answer from a program of its own.
#[track_caller]
fn assert_costs_no_run(prestart: &str) -> Service {
    let service = prestarting(prestart).start();
    for round in 0..4 {
        let answer = service.run(&format!("{STATE}; echo {round}"));
        assert_eq!(answer.stdout(), format!("cold\n{round}\n"), "{prestart}");
        thread::sleep(Duration::from_millis(60));
    }
    service
}

#[test]
fn a_program_that_does_not_get_ready_costs_no_run_and_leaves_nothing() {
    let forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 600 & done; \
                 echo ready; read line";
    for prestart in [
        forks,
        "exit 3",
        "kill -9 $$",
        "yes",
        "yes >&2",
        "printf 'ready'; exit 0",
        "echo Ready; read line",
        "echo warning >&2; echo ready; read line",
        "no-such-program",
        "f() { f | f & f; }; f",
        "tail -c 900m /dev/zero; echo ready; read line",
    ] {
        let mut service = assert_costs_no_run(prestart);
        wait_metric(&service, "boxes_failed_total", 1.0);
        assert_eq!(metric(&service, "boxes_used_total"), 0.0, "{prestart}");
        service.stop();
        assert_eq!(inits(service.pid()).len(), 0, "{prestart}");
    }
}

#[test]
fn a_program_that_hangs_costs_no_run_and_no_time_at_the_end() {
    // The word alone is no wait.
    for prestart in
        ["exec sleep 600", "echo ready; exec sleep 600", "echo ready; while :; do :; done"]
    {
        let mut service = assert_costs_no_run(prestart);
        wait_until("the program", PATIENCE, || inits(service.pid()).len() >= 2);
        assert_eq!(service.run(STATE).stdout(), "cold\n", "{prestart}");
        let began = Instant::now();
        service.stop();
        assert!(began.elapsed() < Duration::from_secs(15), "{prestart}: {:?}", began.elapsed());
        assert_eq!(inits(service.pid()).len(), 0, "{prestart}");
    }
}

#[test]
fn a_program_that_lies_about_being_ready_costs_no_run() {
    for prestart in [
        "echo ready; exit 0",
        "echo ready; sleep 0.1; echo more; read line",
        "echo ready; sleep 0.1; echo more >&2; read line",
        "echo ready; sleep 0.1; kill -9 $$",
        "echo ready; sh -c 'sleep 0.2; echo late'; read line",
    ] {
        let service = prestarting(prestart).start();
        assert_eq!(service.run(STATE).stdout(), "cold\n");
        // Some are caught before they are taken for ready.
        let tried =
            || metric(&service, "boxes_made_total") + metric(&service, "boxes_failed_total");
        wait_until("a program", PATIENCE, || tried() >= 1.0);
        // By then it has done what it should not.
        thread::sleep(Duration::from_secs(1));
        for _ in 0..3 {
            assert_eq!(service.run(STATE).stdout(), "cold\n", "{prestart}");
        }
        assert_eq!(metric(&service, "boxes_used_total"), 0.0, "{prestart}");
    }
}

#[test]
fn programs_started_ahead_stay_within_their_memory() {
    let service = prestarting(WAITS).env("STANDBY_MEMORY_MAX", "64KiB").start();
    assert_eq!(service.run(STATE).stdout(), "cold\n");
    wait_metric(&service, "boxes_failed_total", 1.0);
    assert_eq!(service.run(STATE).stdout(), "cold\n");
    assert_eq!(metric(&service, "boxes_made_total"), 0.0);
    service.log.wait_for("more than there is room for");
}

#[test]
fn nothing_is_started_ahead_where_it_is_switched_off() {
    for (name, value) in [("PRESTART", "off"), ("STANDBY_MAX", "0")] {
        let service = prestarting(WAITS).env(name, value).start();
        for _ in 0..3 {
            assert_eq!(service.run(STATE).stdout(), "cold\n");
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(metric(&service, "boxes_made_total"), 0.0);
    }
}

#[test]
fn every_run_of_a_burst_has_its_answer_while_programs_are_started() {
    let service = prestarting(&format!("sleep 0.05; {WAITS}")).start();
    for round in 0..3 {
        thread::scope(|scope| {
            for number in 0..BURST {
                let service = &service;
                scope.spawn(move || {
                    let answer = service.run(&format!("{STATE}; echo {round} {number}"));
                    let stdout = answer.stdout();
                    let (state, rest) = stdout.split_once('\n').unwrap();
                    assert!(["cold", "warm"].contains(&state), "{stdout}");
                    assert_eq!(rest, format!("{round} {number}\n"));
                });
            }
        });
    }
    assert!(inits(service.pid()).len() <= 4, "{:?}", inits(service.pid()));
}
