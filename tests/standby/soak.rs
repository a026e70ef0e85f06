//! After any number of runs with boxes made ahead the server and the host are as before.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{post, solution, solution_within};
use cofferdam_test_server::host::{
    Footprint, alone, descendants, host_id_files, in_turn, mounts, resident_bytes,
    threads_and_descriptors,
};
use cofferdam_test_server::service::{Service, Setup};
use cofferdam_test_server::workspace::Workspace;

use crate::ready::{shells, wait_ready};

/// Runs of the short form; `STANDBY_RUNS` asks for another number.
const RUNS: usize = 300;
const SLUGS: [&str; 2] = ["copied", "overlaid"];
const CONCURRENCY: usize = 4;
const STANDBY_MAX: usize = 3;
/// Threads that served an admission stay for ten seconds in case of another.
const SETTLED_WITHIN: Duration = Duration::from_secs(40);
/// What an allocator may keep of the busiest moment, four outputs of a mebibyte and their JSON.
const RESIDENT_ONCE_MAX: u64 = 24 << 20;
/// And of every run.
const RESIDENT_PER_RUN_MAX: u64 = 512;

/// What must not grow.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    threads: usize,
    descriptors_but_owners: usize,
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
            // Each id has one once it has been that of an overlaid box.
            descriptors_but_owners: descriptors - owners(service.pid()),
            host_ids: host_id_files(service.pid()).len(),
            mounts: mounts(service.pid()),
            processes: descendants(service.pid()).len(),
            cgroups: footprint.cgroups().len(),
        }
    }
}

/// The user namespaces it holds, by which overlays show a template as a tenant's.
fn owners(pid: i32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let opened = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    opened.filter(|path| path.to_string_lossy().starts_with("user:[")).count()
}

/// One run of some kind, and whether it was answered as that kind has to be.
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
            // Gone before it was even let in.
            service.connect().send(post("", body.to_string()));
        }
        // Whatever stands is of a state of the template that is gone.
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

/// As it is once nothing changes any more, with all the boxes that may stand.
fn settled(service: &Service, footprint: &Footprint, last: Option<&Holdings>) -> Holdings {
    let deadline = Instant::now() + SETTLED_WITHIN;
    let (mut now, mut since) = (Holdings::of(service, footprint), Instant::now());
    while Instant::now() < deadline {
        // Without one to come back to: idle threads last for ten seconds.
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
        // The leavers' runs may still be ending when the next ones come.
        .env("RUN_CONCURRENCY", (4 * CONCURRENCY).to_string())
        .start();
    let footprint = Footprint::of(service.pid());
    // What is made once for an id, a template or a thread is there after these.
    run_kinds(&service, &langs, 64);
    wait_ready(&service, STANDBY_MAX);
    let before = settled(&service, &footprint, None);
    let resident_before = resident_bytes(service.pid());
    println!("before: {before:?}");

    run_kinds(&service, &langs, runs);
    wait_ready(&service, STANDBY_MAX);
    let after = settled(&service, &footprint, Some(&before));
    assert_eq!(after, before);
    assert!(owners(service.pid()) <= after.host_ids, "{}", owners(service.pid()));
    let grown = resident_bytes(service.pid()).saturating_sub(resident_before);
    println!("{runs} runs; resident memory grew by {grown} bytes");
    let grown_max = RESIDENT_ONCE_MAX + RESIDENT_PER_RUN_MAX * u64::try_from(runs).unwrap();
    assert!(grown < grown_max, "{grown} bytes");
}
