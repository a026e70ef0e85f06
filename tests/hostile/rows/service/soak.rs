//! Hundreds of hostile runs, and the resources held before and after them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post};
use cofferdam_test_server::host::{
    Footprint, descendants, mounts, ready_sandboxes, resident_bytes, threads_and_descriptors,
};
use cofferdam_test_server::service::{Service, wait_until};

use crate::Unexercised;
use crate::aftermath::tenants_files;
use crate::probe::Probe;
use crate::rows::at_once;
use crate::target::{NAP, Own, Target, standby_max};

/// Runs of the short form; `HOSTILE_RUNS` sets another number.
const RUNS: usize = 300;
const CONCURRENCY: usize = 8;
const QUARTERS: usize = 4;
/// Threads that served an admission stay for ten seconds for the next one;
/// the short form does not wait until they end.
const THREADS_KEPT_MAX: usize = 4 * CONCURRENCY;
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// Memory that the allocator may keep from the peak.
const RESIDENT_GROWTH_MAX: u64 = 48 << 20;
/// Sandboxes of other services on this host have network namespaces too.
const NET_NAMESPACES_MORE_MAX: u64 = 64;

/// Functions of `cheap.py`, the timeout, and the allowed outcomes of such a run.
const KINDS: [(&str, &str, &str); 16] = [
    ("nothing", "20s", "exited"),
    ("forks", "20s", "exited"),
    ("sessions", "20s", "exited"),
    ("threads", "20s", "exited"),
    ("flood", "20s", "output_limit"),
    ("memory", "20s", "memory_limit"),
    ("disk", "20s", "disk_limit"),
    ("deep_tree", "20s", "exited"),
    ("many_files", "20s", "exited|disk_limit"),
    ("links", "20s", "exited"),
    ("descriptors", "20s", "exited"),
    ("sockets", "20s", "exited"),
    ("shared_memory", "20s", "exited"),
    ("crash", "20s", "exited|signaled"),
    ("deaf", "300ms", "timed_out"),
    ("stop_all", "300ms", "timed_out"),
];
/// Clients that do not wait for an answer, and one that sends no HTTP request.
const RUDE: [fn(&Service, &str); 4] = [leave_at_once, leave_running, leave_streaming, send_rubbish];

/// Counts that must not grow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceCounts {
    threads: usize,
    descriptors: usize,
    uids_locked: usize,
    processes: usize,
    zombies: usize,
    cgroups: usize,
    mounts_of_service: usize,
    mounts_of_host: usize,
    temporary_files: usize,
    tenants_files: usize,
}

impl ResourceCounts {
    fn of(service: &Service, footprint: &Footprint, temporary: &Path) -> Self {
        let (threads, descriptors) = threads_and_descriptors(service.pid());
        let below = descendants(service.pid());
        Self {
            threads,
            descriptors,
            uids_locked: uids_locked(service.pid()),
            zombies: below.iter().filter(|process| !process.is_alive()).count(),
            processes: below.len(),
            cgroups: footprint.cgroups().len(),
            mounts_of_service: mounts(service.pid()),
            mounts_of_host: mounts(1),
            temporary_files: fs::read_dir(temporary).unwrap().count(),
            tenants_files: tenants_files(),
        }
    }

    fn is_within(&self, before: &Self) -> bool {
        self.threads <= before.threads
            && self.descriptors <= before.descriptors
            && self.uids_locked <= before.uids_locked
            && self.processes <= before.processes
            && self.cgroups <= before.cgroups
            && self.mounts_of_service <= before.mounts_of_service
            && self.mounts_of_host <= before.mounts_of_host
            && self.temporary_files <= before.temporary_files
            && self.tenants_files <= before.tenants_files
    }
}

/// Host uids that the server holds for sandboxes.
fn uids_locked(pid: i32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    targets.filter(|target| target.parent().is_some_and(|parent| parent.ends_with("uids"))).count()
}

/// Network namespaces of the whole host, if the kernel reports them.
fn net_namespaces() -> Option<u64> {
    let slabs = fs::read_to_string("/proc/slabinfo").ok()?;
    let line = slabs.lines().find(|line| line.starts_with("net_namespace "))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

pub fn of_hostile_runs(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let runs = std::env::var("HOSTILE_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let service = service(own, temporary.path());
    let footprint = Footprint::of(service.pid());
    let counted = || ResourceCounts::of(&service, &footprint, temporary.path());
    let idle_threads = counted().threads;
    // One run of each kind first, so that resources created only once exist.
    (0..KINDS.len() + RUDE.len()).for_each(|number| run_some_kind(&service, target.slug(), number));
    fill_standby(&service, target.slug());
    let before = settled(|| ResourceCounts { threads: idle_threads, ..counted() });
    let namespaces_before = net_namespaces();
    println!("before: {before:?}, net namespaces {namespaces_before:?}");

    let resident = run_all(&service, target.slug(), runs);
    let threads_kept = if runs > RUNS { 0 } else { THREADS_KEPT_MAX };
    let bounds = ResourceCounts { threads: idle_threads + threads_kept, ..before.clone() };
    let (mut after, deadline) = (counted(), Instant::now() + SETTLED_WITHIN);
    while !after.is_within(&bounds) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
        after = counted();
    }
    let namespaces = net_namespaces();
    println!("after:  {after:?}, net namespaces {namespaces:?}");
    println!("resident bytes before and after each quarter of {runs} runs: {resident:?}");
    assert!(after.is_within(&bounds), "{after:?}\nbefore: {before:?}");
    let grown = resident[QUARTERS].saturating_sub(resident[0]);
    assert!(grown < RESIDENT_GROWTH_MAX, "resident memory grew by {grown} bytes");
    if let (Some(before), Some(after)) = (namespaces_before, namespaces) {
        assert!(
            after <= before + NET_NAMESPACES_MORE_MAX,
            "{before} net namespaces became {after}"
        );
    }
    Ok(())
}

/// Fills the standby pool of `service`.
fn fill_standby(service: &Service, slug: &str) {
    let nap = post("", Probe::inline(NAP).body(slug).to_string());
    at_once(CONCURRENCY, |_| service.ask(&nap));
    wait_until("a full standby pool", SETTLED_WITHIN, || {
        ready_sandboxes(service.pid()).len() == standby_max()
    });
}

fn service(own: &Own, temporary: &Path) -> Service {
    own.another()
        // Runs of disconnected clients may still be ending when the next ones start.
        .env("RUN_CONCURRENCY", (4 * CONCURRENCY).to_string())
        .env("RUN_MEMORY_MAX", "64MiB")
        .env("RUN_DISK_MAX", "8MiB")
        .env("TMPDIR", temporary)
        // As many as the pool holds after all concurrent runs have ended.
        .env("STANDBY_MAX", standby_max().to_string())
        .start()
}

/// Does all the runs; returns the server's memory before them and after each quarter.
fn run_all(service: &Service, slug: &str, runs: usize) -> Vec<u64> {
    let mut resident = vec![resident_bytes(service.pid())];
    let next = AtomicUsize::new(0);
    for quarter in 1..=QUARTERS {
        at_once(CONCURRENCY, |_| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= runs * quarter / QUARTERS {
                    next.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
                run_some_kind(service, slug, number);
            }
        });
        resident.push(resident_bytes(service.pid()));
    }
    resident
}

/// The value of `count` once it has not changed for a fifth of a second.
fn settled(count: impl Fn() -> ResourceCounts) -> ResourceCounts {
    let deadline = Instant::now() + SETTLED_WITHIN;
    let (mut last, mut since) = (count(), Instant::now());
    while since.elapsed() < Duration::from_millis(200) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
        let now = count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Does one run of some kind and asserts that its outcome is allowed for that kind.
fn run_some_kind(service: &Service, slug: &str, number: usize) {
    let kind = number % (KINDS.len() + RUDE.len());
    let Some((name, timeout, ends)) = KINDS.get(kind) else {
        return RUDE[kind - KINDS.len()](service, slug);
    };
    let probe = Probe::python("cheap").arg(*name).within(timeout);
    let answer = service.ask(post("", probe.body(slug).to_string()));
    let outcome = answer.header("x-run-outcome").unwrap_or_default();
    assert!(ends.split('|').any(|end| end == outcome), "{name}: {answer:?}");
}

fn start(service: &Service, slug: &str, headers: &str) -> Client {
    let mut client = service.connect();
    let probe = Probe::python("cheap").arg("deaf");
    client.send(post(headers, probe.body(slug).to_string()));
    client
}

fn leave_at_once(service: &Service, slug: &str) {
    start(service, slug, "").abort();
}

fn leave_running(service: &Service, slug: &str) {
    let client = start(service, slug, "");
    thread::sleep(Duration::from_millis(100));
    drop(client);
}

fn leave_streaming(service: &Service, slug: &str) {
    let mut client = start(service, slug, "accept: text/event-stream\r\n");
    assert_eq!(client.head().status, 200);
    client.abort();
}

fn send_rubbish(service: &Service, slug: &str) {
    let request = format!("POST /run HTTP/1.1\r\ncontent-length: -{}\r\n\r\n{{", slug.len());
    assert_eq!(service.ask(request).status, 400);
}
