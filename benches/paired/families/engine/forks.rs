//! Forks: how long they take by size and depth, and programs in them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::service::Setup;
use serde_json::json;

use super::scene::Engine;
use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, millis};

const DEPTH: usize = 60;
const FORKS: usize = 200;
const CLIENTS: usize = 8;
/// Enough for the layers of a deleted fork to be merged, so that no fork is deeper than the one before.
const MERGE_PAUSE: Duration = Duration::from_millis(250);
/// Changes 10 MB in 100 files and goes on.
const CHANGES: &str = "i=0; while [ $i -lt 100 ]; do head -c 100000 /dev/zero >f$i; i=$((i + 1)); done; touch ready; sleep 600";

pub fn measure(report: &mut Report) {
    let mut engine = Engine::start(Setup::shell());
    let small = engine.create(&json!({}));
    for (key, mebibytes) in [("engine_fork_100mb", 100), ("engine_fork_1gb", 1024)] {
        let disk = json!({"policy": {"max_disk_bytes": (mebibytes + 512) << 20}});
        let large = engine.create(&disk);
        engine.sh(&large, &format!("head -c {mebibytes}M /dev/zero >file"));
        let pairs = changed_forks(&mut engine, &large, &small, report.pairs);
        engine.delete(&large);
        report.row(key, pairs.first(), pairs.second(), pairs.firsts());
    }
    let [shallow, deep] = [1, DEPTH].map(|depth| chain(&mut engine, depth));
    report.paired("engine_fork_deep", &forks(&mut engine, &deep, &shallow, report.pairs));
    let mut program = engine.program(&deep, "python3", &["-c", "pass"]);
    let mut control = engine.program(&shallow, "python3", &["-c", "pass"]);
    let pairs = Pairs::take(report.pairs, || program.millis(), || control.millis());
    report.paired("engine_python_deep", &pairs);
    beside_program(report, &mut engine);
    drop(engine);
    many(report);
}

/// Forks of `large` (A) and of `small` (B), each after a change.
fn changed_forks(engine: &mut Engine, large: &str, small: &str, count: usize) -> Pairs {
    let mut pairs = Pairs::default();
    for pair in 0..=count {
        let [a, b] = [large, small].map(|workspace| {
            let put = engine.ask("PUT", &format!("{workspace}/files?path=changed"), "x");
            assert!(put.status < 300, "{put:?}");
            let (fork, took) = engine.fork(workspace);
            engine.delete(&fork);
            took
        });
        if pair > 0 {
            pairs.push(a, b);
        }
        thread::sleep(MERGE_PAUSE);
    }
    pairs
}

/// Forks of `one` (A) and of `other` (B), of which nothing has changed.
fn forks(engine: &mut Engine, one: &str, other: &str, count: usize) -> Pairs {
    let mut pairs = Pairs::default();
    for pair in 0..=count {
        let [a, b] = [one, other].map(|workspace| {
            let (fork, took) = engine.fork(workspace);
            engine.delete(&fork);
            took
        });
        if pair > 0 {
            pairs.push(a, b);
        }
    }
    pairs
}

/// A workspace with that many frozen layers, each of which a snapshot keeps.
fn chain(engine: &mut Engine, depth: usize) -> String {
    let workspace = engine.create(&json!({}));
    for layer in 0..depth {
        let put = engine.ask("PUT", &format!("{workspace}/files?path=layers/{layer}"), "x");
        assert_eq!(put.status, 201, "{put:?}");
        engine.json("POST", &format!("{workspace}/snapshot"), &json!({}));
    }
    workspace
}

/// Forks beside a program that has changed files (A), and of a workspace at rest (B).
fn beside_program(report: &mut Report, engine: &mut Engine) {
    let [busy, idle] = [(); 2].map(|()| {
        let workspace = engine.create(&json!({}));
        engine.sh(&workspace, "head -c 100M /dev/zero >file");
        engine.json("POST", &format!("{workspace}/snapshot"), &json!({}));
        workspace
    });
    let body = json!({"cmd": "sh", "args": ["-ec", CHANGES], "timeout_ms": 600_000});
    engine.json("POST", &format!("{busy}/sessions"), &body);
    let deadline = Instant::now() + Duration::from_secs(20);
    while engine.ask("GET", &format!("{busy}/stat?path=ready"), "").status != 200 {
        assert!(Instant::now() < deadline, "the program changes no files");
        thread::sleep(Duration::from_millis(10));
    }
    let pairs = forks(engine, &busy, &idle, report.pairs);
    report.row("engine_fork_running", pairs.first(), pairs.second(), pairs.firsts());
    [busy, idle].iter().for_each(|workspace| engine.delete(workspace));
}

/// `true` in each of many forks (A), and as many plain runs (B), by several clients.
fn many(report: &mut Report) {
    let setup = Setup::of(bare::workspace("/bin/true", 10, 4096));
    let mut engine = Engine::start(setup.env("RUN_CONCURRENCY", CLIENTS.to_string()));
    let source = engine.create(&json!({}));
    engine.sh(&source, "head -c 10M /dev/zero >file");
    let mut pairs = Pairs::default();
    for _ in 0..report.pairs.div_ceil(10) {
        let forks: Vec<String> = (0..FORKS).map(|_| engine.fork(&source).0).collect();
        let in_forks = by_clients(|| {
            let mut client = engine.connect();
            let forks = &forks;
            move |number: usize| client.run_true(&forks[number])
        });
        let plain = by_clients(|| {
            let mut runner = Runner::of(&engine.service);
            move |_| _ = runner.run()
        });
        forks.iter().for_each(|fork| engine.delete(fork));
        pairs.push(in_forks, plain);
    }
    report.paired("engine_forks", &pairs);
}

/// How long several workers take for as many calls as there are forks.
fn by_clients<W: FnMut(usize)>(worker: impl Fn() -> W + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut work = worker();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= FORKS {
                return;
            }
            work(number);
        }
    };
    millis(|| thread::scope(|scope| (0..CLIENTS).for_each(|_| _ = scope.spawn(work))))
}
