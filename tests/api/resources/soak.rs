//! Runs of every kind leave nothing behind, in the server or on the host.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{post, solution, solution_within};
use cofferdam_test_server::host::{
    Footprint, Process, descendants, in_turn, mounts, resident_bytes, tenants,
    threads_and_descriptors,
};
use cofferdam_test_server::service::{Service, Setup, wait_until};

/// The default number of runs, which `SOAK_RUNS` overrides.
const RUNS: usize = 200;
const CONCURRENCY: usize = 8;
/// Idle threads end after ten seconds.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// What the allocator may keep from the busiest moment: eight outputs of one mebibyte and their
/// JSON.
const RESIDENT_GROWTH_MAX: u64 = 48 << 20;

/// Counts that must not grow.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    threads: usize,
    descriptors: usize,
    mounts: usize,
    processes: usize,
    cgroups: usize,
    own_temporary_files: usize,
    tenants_files_in_tmp: usize,
}

impl Holdings {
    fn of(service: &Service, footprint: &Footprint, temporary: &Path) -> Self {
        let (threads, descriptors) = threads_and_descriptors(service.pid());
        Self {
            threads,
            descriptors,
            mounts: mounts(service.pid()),
            processes: descendants(service.pid()).len(),
            cgroups: footprint.cgroups().len(),
            own_temporary_files: fs::read_dir(temporary).unwrap().count(),
            tenants_files_in_tmp: tenants_files(Path::new("/tmp")),
        }
    }
}

/// What `count` returns once it stays the same for a fifth of a second, when the last connections
/// are closed on both sides.
fn settled(count: impl Fn() -> Holdings) -> Holdings {
    let (mut last, mut since) = (count(), Instant::now());
    while since.elapsed() < Duration::from_millis(200) {
        thread::sleep(Duration::from_millis(5));
        let now = count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

fn tenants_files(directory: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(directory).unwrap().flatten();
    let owners = entries.filter_map(|entry| Some(entry.metadata().ok()?.uid()));
    owners.filter(|uid| cofferdam_test_server::host::HOST_UIDS.contains(uid)).count()
}

/// Starts one of eight kinds of runs and checks its outcome.
fn run_some_kind(service: &Service, number: usize) {
    let expect = |script: &str, timeout: &str, outcome: &str| {
        let answer = service.post(&solution_within(timeout, script));
        assert_eq!(answer.header("x-run-outcome"), Some(outcome), "{script}: {answer:?}");
    };
    match number % 8 {
        0 => expect("echo hi", "20s", "exited"),
        1 => expect("sleep 60", "100ms", "timed_out"),
        2 => expect("yes", "20s", "output_limit"),
        3 => expect("i=0; while [ $i -lt 50 ]; do sleep 60 & i=$((i+1)); done", "20s", "exited"),
        4 => expect(
            "while :; do head -c 1000000 /dev/zero >>$((i=i+1)) || exit 1; done",
            "20s",
            "disk_limit",
        ),
        5 => expect("kill -SEGV $$", "20s", "signaled"),
        6 => drop(service.live("setsid sleep 60 & sleep 60")),
        // The client disconnects before the run is admitted.
        _ => service.connect().send(post("", solution("sleep 60").to_string())),
    }
}

#[test]
fn many_runs_of_every_kind_leave_nothing_behind() {
    let _alone = alone();
    let temporary = tempfile::tempdir().unwrap();
    let runs = std::env::var("SOAK_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let service = Setup::shell()
        // Runs of clients that disconnected may still be ending when the next ones start.
        .env("RUN_CONCURRENCY", (4 * CONCURRENCY).to_string())
        .env("RUN_DISK_MAX", "8MiB")
        .env("TMPDIR", temporary.path())
        // The standby pool depends on the last run. tests/standby has its own soak test.
        .env("STANDBY_MAX", "0")
        .start();
    let footprint = Footprint::of(service.pid());
    let count = || Holdings::of(&service, &footprint, temporary.path());
    // A run leaves an idle thread for a while, so threads are counted before the first run.
    let idle_threads = settled(count).threads;
    assert_eq!(service.run("true").stdout(), "");
    let before = Holdings { threads: idle_threads, ..settled(count) };

    let resident_before = resident_bytes(service.pid());
    in_turn(CONCURRENCY, runs, |number| run_some_kind(&service, number));

    let mut after = count();
    let deadline = Instant::now() + SETTLED_WITHIN;
    while after != before && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
        after = count();
    }
    assert_eq!(after, before);
    let grown = resident_bytes(service.pid()).saturating_sub(resident_before);
    println!("{runs} runs; resident memory grew by {grown} bytes");
    assert!(grown < RESIDENT_GROWTH_MAX, "{grown} bytes");
    assert_eq!(service.run("echo hi").stdout(), "hi\n");
}

#[test]
fn tenants_die_with_a_killed_server_and_the_next_start_cleans_up() {
    let mut service = Setup::shell().start();
    let footprint = Footprint::of(service.pid());
    let _live = [
        service.live("sleep 60"),
        service.live("trap '' TERM HUP INT; setsid sleep 60 & (sleep 60 &); sleep 60"),
        service.live("while :; do :; done"),
        service.live("kill -STOP $$"),
    ];
    wait_until("the tenants", Duration::from_secs(10), || tenants(service.pid()).len() >= 7);
    let tenants = tenants(service.pid());
    service.kill();
    wait_until("the tenants to die", Duration::from_secs(1), || {
        !tenants.iter().any(Process::is_alive)
    });

    let next = Setup::shell().start();
    // Another server that starts now may do the cleanup instead.
    wait_until("the cleanup", Duration::from_secs(5), || footprint.is_gone());
    assert_eq!(next.run("echo hi").stdout(), "hi\n");
}
