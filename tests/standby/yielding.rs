//! Runs come before the standby pool: while CPUs are short, no sandbox is prepared.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{post, solution};
use cofferdam_test_server::host::{Process, inits, is_running};
use cofferdam_test_server::service::{Service, wait_until};

use crate::ready::{PATIENCE, shell_with, wait_ready};

/// Clients that each post the next run as soon as they have an answer.
const CLIENTS: usize = 8;
/// How long they post at a time.
const WINDOW: Duration = Duration::from_millis(800);
/// How often each of the two servers is measured.
const TURNS: usize = 11;
/// The least throughput, relative to a server without a standby pool.
const RATIO_MIN: f64 = 0.85;

/// The runs per second that the clients get.
fn runs_per_second(service: &Service) -> f64 {
    let (over, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let request = post("", solution("echo hi").to_string());
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = service.connect();
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(client.ask(&request).stdout(), "hi\n");
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(WINDOW);
        over.store(true, Ordering::Relaxed);
    });
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    let runs = runs.load(Ordering::Relaxed) as f64;
    runs / began.elapsed().as_secs_f64()
}

#[test]
fn the_standby_pool_does_not_slow_down_many_clients() {
    let _alone = alone();
    let services = [shell_with(0).start(), shell_with(10).start()];
    for service in &services {
        // Warms up both servers.
        runs_per_second(service);
    }
    let mut ratios: Vec<f64> = (0..TURNS)
        .map(|turn| {
            // Each server is first equally often.
            let without_first = turn % 2 == 0;
            let first = runs_per_second(&services[usize::from(!without_first)]);
            let second = runs_per_second(&services[usize::from(without_first)]);
            if without_first { second / first } else { first / second }
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("runs per second with a standby pool, relative to none: {ratios:.2?}");
    assert!(ratios[TURNS / 2] >= RATIO_MIN, "{ratios:.2?}");
}

/// More concurrent runs than CPUs, with room for one more sandbox.
fn crowd() -> usize {
    thread::available_parallelism().unwrap().get() + 3
}

/// Watches for inits that are not in `known` until `until`. Also returns the number of looks.
fn new_inits(service: &Service, known: &[Process], until: Instant) -> (Vec<Process>, usize) {
    let (mut new, mut looks) = (Vec::new(), 0);
    while Instant::now() < until {
        new.extend(inits(service.pid()).into_iter().filter(|init| !known.contains(init)));
        looks += 1;
        thread::sleep(Duration::from_millis(2));
    }
    (new, looks)
}

#[test]
fn no_sandbox_is_prepared_while_new_runs_outnumber_the_cpus() {
    let _alone = alone();
    let count = crowd();
    let service = shell_with(2 * count).env("RUN_CONCURRENCY", count.to_string()).start();
    let request = post("", solution("sleep 1.5").to_string());
    let mut looks_taken = 0;
    for _ in 0..5 {
        let began = Instant::now();
        let mut clients: Vec<_> = (0..count).map(|_| service.connect()).collect();
        for client in &mut clients {
            client.send(&request);
        }
        let sleeping = |init: &&Process| is_running(init.pid, "sleep");
        wait_until("all the runs", PATIENCE, || {
            inits(service.pid()).iter().filter(sleeping).count() == count
        });
        // A sandbox whose preparation began before the runs is prepared by now. A run counts as new
        // for a second.
        thread::sleep(Duration::from_millis(50));
        let known = inits(service.pid());
        let (new, looks) = new_inits(&service, &known, began + Duration::from_millis(950));
        assert_eq!(new, [], "prepared during {count} new runs");
        looks_taken += looks;
        for client in &mut clients {
            assert_eq!(client.answer().stdout(), "");
        }
        // The pool was below its size all the time.
        wait_ready(&service, count);
    }
    assert!(looks_taken > 0, "in no round did all runs start within a second");
}

#[test]
fn long_runs_do_not_stop_the_preparation_of_sandboxes() {
    let count = crowd();
    let service = shell_with(1).env("RUN_CONCURRENCY", (count + 1).to_string()).start();
    let _live: Vec<_> = (0..count).map(|_| service.live("sleep 60")).collect();
    wait_ready(&service, 1);
    assert_eq!(service.run("echo hi").stdout(), "hi\n");
    wait_ready(&service, 1);
}
