//! Runs with a standby pool leave nothing behind, in the server or on the host.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{post, solution, solution_within};
use cofferdam_test_server::host::{
    Footprint, descendants, host_id_files, in_turn, mounts, resident_bytes, threads_and_descriptors,
};
use cofferdam_test_server::service::{Service, Setup};
use cofferdam_test_server::workspace::Workspace;

use crate::ready::{shells, wait_ready};

/// The default number of runs, which `STANDBY_RUNS` overrides.
const RUNS: usize = 300;
const SLUGS: [&str; 2] = ["copied", "overlaid"];
const CONCURRENCY: usize = 4;
const STANDBY_MAX: usize = 3;
/// Idle threads end after ten seconds.
const SETTLED_WITHIN: Duration = Duration::from_secs(40);
/// What the allocator may keep from the busiest moment: four outputs of one mebibyte and their
/// JSON.
const RESIDENT_ONCE_MAX: u64 = 24 << 20;
/// And from each run.
const RESIDENT_PER_RUN_MAX: u64 = 512;
/// The free network namespaces that there may be more of in the end.
pub const NETWORKS_MORE_MAX: usize = 4;

/// Counts that must not grow.
#[derive(Debug, PartialEq, Eq)]
pub struct Holdings {
    threads: usize,
    descriptors_but_namespaces: usize,
    host_ids: usize,
    mounts: usize,
    processes: usize,
    cgroups: usize,
}

impl Holdings {
    fn of(service: &Service, footprint: &Footprint) -> Self {
        let (threads, descriptors) = threads_and_descriptors(service.pid());
        Self {
            threads,
            // Each host id has an owner after its first overlaid workspace, and how many networks wait for
            // the next run changes.
            descriptors_but_namespaces: descriptors
                - owners(service.pid())
                - networks(service.pid()),
            host_ids: host_id_files(service.pid()).len(),
            mounts: mounts(service.pid()),
            processes: descendants(service.pid()).len(),
            cgroups: footprint.cgroups().len(),
        }
    }
}

/// The user namespaces that the server holds to map the owner of overlaid templates.
fn owners(pid: i32) -> usize {
    namespaces(pid, "user:[")
}

/// The network namespaces that the server holds, those of its sandboxes and those that wait for one.
pub fn networks(pid: i32) -> usize {
    namespaces(pid, "net:[")
}

fn namespaces(pid: i32, kind: &str) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let opened = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    opened.filter(|path| path.to_string_lossy().starts_with(kind)).count()
}

/// Starts one kind of run and checks its outcome.
fn run_some_kind(service: &Service, langs: &Workspace, number: usize) {
    let slug = SLUGS[number % 2];
    let expect = |script: &str, timeout: &str, outcome: &str| {
        let mut body = solution_within(timeout, script);
        body["lang_slug"] = slug.into();
        let answer = service.post(&body);
        assert_eq!(answer.header("x-run-outcome"), Some(outcome), "{script}: {answer:?}");
    };
    match number / 2 % 8 {
        0 => expect("sleep 60", "100ms", "timed_out"),
        1 => expect("yes", "20s", "output_limit"),
        2 => expect("sleep 60 & sleep 60 & setsid sleep 60 &", "20s", "exited"),
        3 => expect("kill -SEGV $$", "20s", "signaled"),
        4 => {
            let mut body = solution("sleep 60");
            body["lang_slug"] = slug.into();
            // The client disconnects before the run is admitted.
            service.connect().send(post("", body.to_string()));
        }
        // The prepared sandboxes have an older state of the template.
        5 => {
            langs.put(&format!("{slug}/changed"), &number.to_string());
            expect("cat changed", "20s", "exited");
        }
        _ => expect("echo hi", "20s", "exited"),
    }
}

fn run_kinds(service: &Service, langs: &Workspace, runs: usize) {
    in_turn(CONCURRENCY, runs, |number| run_some_kind(service, langs, number));
}

/// The counts once they no longer change, with a full pool.
pub fn settled(service: &Service, footprint: &Footprint, last: Option<&Holdings>) -> Holdings {
    let deadline = Instant::now() + SETTLED_WITHIN;
    let (mut now, mut since) = (Holdings::of(service, footprint), Instant::now());
    while Instant::now() < deadline {
        // Without an idle thread, since those end after ten seconds.
        if last.map_or(since.elapsed() > Duration::from_secs(12), |last| *last == now) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        let next = Holdings::of(service, footprint);
        if next != now {
            (now, since) = (next, Instant::now());
        }
    }
    now
}

#[test]
fn many_runs_with_a_standby_pool_leave_nothing_behind() {
    let _alone = alone();
    let runs = std::env::var("STANDBY_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let langs = shells(&SLUGS);
    let service = Setup::inside(langs.path())
        .arg("--langs")
        .arg(langs.path())
        .env("STANDBY_MAX", STANDBY_MAX.to_string())
        // Runs of clients that disconnected may still be ending when the next ones start.
        .env("RUN_CONCURRENCY", (4 * CONCURRENCY).to_string())
        .start();
    let footprint = Footprint::of(service.pid());
    // Creates what each id, template or thread creates only once.
    run_kinds(&service, &langs, 64);
    wait_ready(&service, STANDBY_MAX);
    let before = settled(&service, &footprint, None);
    let (resident_before, networks_before) =
        (resident_bytes(service.pid()), networks(service.pid()));
    println!("before: {before:?}");

    run_kinds(&service, &langs, runs);
    wait_ready(&service, STANDBY_MAX);
    let after = settled(&service, &footprint, Some(&before));
    assert_eq!(after, before);
    assert!(networks(service.pid()) <= networks_before + NETWORKS_MORE_MAX);
    assert!(owners(service.pid()) <= after.host_ids, "{}", owners(service.pid()));
    let grown = resident_bytes(service.pid()).saturating_sub(resident_before);
    println!("{runs} runs; resident memory grew by {grown} bytes");
    let grown_max = RESIDENT_ONCE_MAX + RESIDENT_PER_RUN_MAX * u64::try_from(runs).unwrap();
    assert!(grown < grown_max, "{grown} bytes");
}
