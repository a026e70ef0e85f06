//! The size of the standby pool: never above its maximum, and never at the cost of a run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cofferdam_test_server::client::solution_within;
use cofferdam_test_server::host::{Process, inits, ready_sandboxes};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ready::{PATIENCE, shell_with, shells, wait_ready};

/// Runs posted at once.
const BURST: usize = 6;
const SLUGS: [&str; 3] = ["alpha", "beta", "gamma"];
const TIMEOUTS: [&str; 3] = ["10s", "20s", "30s"];
/// The time between two looks at the pool.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// In so many looks, one after the other, a prepared sandbox is seen.
const LOOKS: usize = 4;

fn burst(service: &Service, round: usize) {
    thread::scope(|scope| {
        for number in 0..BURST {
            scope.spawn(move || {
                let (slug, timeout) = (SLUGS[(number + round) % 3], TIMEOUTS[number % 3]);
                let mut body = solution_within(timeout, &format!("sleep 0.0{round}; echo {slug}"));
                body["lang_slug"] = slug.into();
                assert_eq!(service.post(&body).stdout(), format!("{slug}\n"));
            });
        }
    });
}

/// The largest number of prepared sandboxes seen until `over` is set. The sandbox of a run looks prepared until
/// its program is resumed, so one counts that is seen several times in a row.
fn most_ready(service: &Service, over: &AtomicBool) -> usize {
    let (mut most, mut looks) = (0, VecDeque::new());
    while !over.load(Ordering::SeqCst) {
        looks.push_front(ready_sandboxes(service.pid()));
        looks.truncate(LOOKS);
        let stays = |init: &&Process| looks.iter().all(|look| look.contains(init));
        if looks.len() == LOOKS {
            most = most.max(looks[0].iter().filter(stays).count());
        }
        thread::sleep(LOOK_EVERY);
    }
    most
}

fn assert_no_more_than(sandboxes_max: usize) {
    let langs = shells(&SLUGS);
    let setup = Setup::inside(langs.path()).arg("--langs").arg(langs.path());
    let service = setup.env("STANDBY_MAX", sandboxes_max.to_string()).start();
    let over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let looking = scope.spawn(|| most_ready(&service, &over));
        // `over` must be set even if a burst panics.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..9 {
                burst(&service, round);
                // Gives the pool time to prepare some between two bursts.
                thread::sleep(Duration::from_millis(60));
            }
            wait_ready(&service, sandboxes_max);
            // The pool must not grow any more.
            thread::sleep(Duration::from_millis(300));
        }));
        over.store(true, Ordering::SeqCst);
        let most = looking.join().unwrap();
        ended.map(|()| most).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert_eq!(most, sandboxes_max);
    assert_eq!(inits(service.pid()).len(), sandboxes_max, "sandboxes other than the ready ones");
}

#[test]
fn a_pool_of_zero_prepares_no_sandbox() {
    assert_no_more_than(0);
}

#[test]
fn a_pool_of_one_never_exceeds_one() {
    assert_no_more_than(1);
}

#[test]
fn a_pool_of_three_never_exceeds_three() {
    assert_no_more_than(3);
}

#[test]
fn sandboxes_are_prepared_only_for_languages_that_have_run() {
    let langs = shells(&SLUGS);
    let service = Setup::inside(langs.path()).arg("--langs").arg(langs.path()).start();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(inits(service.pid()).len(), 0);
    let mut body = solution_within("10s", "echo hi");
    body["lang_slug"] = "beta".into();
    assert_eq!(service.post(&body).stdout(), "hi\n");
    wait_ready(&service, 1);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(inits(service.pid()).len(), 1);
}

#[test]
fn a_killed_prepared_sandbox_fails_no_run() {
    let service = shell_with(3).start();
    thread::scope(|scope| {
        let runs = [(); 3].map(|()| scope.spawn(|| service.run("sleep 0.3; echo hi").stdout()));
        assert_eq!(runs.map(|run| run.join().unwrap()), ["hi\n"; 3]);
    });
    for how_many in [1, 3, 2] {
        let ready = wait_ready(&service, 3);
        for init in &ready[..how_many] {
            kill(Pid::from_raw(init.pid), Signal::SIGKILL).unwrap();
        }
        // A sandbox whose program is not dead yet may be taken by a run and killed with it.
        wait_until("the killed sandboxes to end", PATIENCE, || {
            !ready[..how_many].iter().any(Process::is_alive)
        });
        for _ in 0..4 {
            assert_eq!(service.run("echo hi").stdout(), "hi\n");
        }
    }
    // Kills only the programs. Their inits then end by themselves.
    for _ in 0..3 {
        wait_ready(&service, 3);
        let programs: Vec<Process> =
            inits(service.pid()).iter().flat_map(|init| inits(init.pid)).collect();
        assert_eq!(programs.len(), 3);
        for program in programs {
            kill(Pid::from_raw(program.pid), Signal::SIGKILL).unwrap();
        }
        assert_eq!(service.run("echo hi").stdout(), "hi\n");
    }
}
