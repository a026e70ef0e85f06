//! A killed sandbox that does not die keeps its uid, namespace and slot until it is dead.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cofferdam_test_server::client::solution_within;
use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::host::{is_running, tenants};
use cofferdam_test_server::service::{Service, Setup, wait_until};

const BUSY: &str = r#"{"error":"runner busy"}"#;
/// How long the service waits for a killed sandbox (`KILL_WAIT`).
const KILL_WAIT: Duration = Duration::from_secs(5);
/// The time limit of the run that is killed.
const WALL: Duration = Duration::from_secs(2);
/// For what must happen soon, on a loaded machine.
const SOON: Duration = Duration::from_secs(30);

/// Keeps one process, and so its sandbox, from dying until this is dropped: the kernel waits for
/// the tracer to notice the death.
struct Held {
    let_go: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Held {
    fn from_dying(pid: i32) -> Self {
        let (let_go, until) = channel();
        let (tell, told) = channel();
        let tracer = thread::spawn(move || {
            // SAFETY: takes integers only.
            let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
            tell.send((seized == 0).then_some(()).ok_or_else(io::Error::last_os_error)).unwrap();
            // The sender is dropped to end this thread, and the trace ends with the thread.
            let _ = until.recv();
        });
        told.recv().unwrap().unwrap();
        Self { let_go: Some(let_go), tracer: Some(tracer) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.let_go.take());
        let _ = self.tracer.take().map(JoinHandle::join);
    }
}

/// The host uids and network namespaces of the service's runs.
fn identities(service: &Service) -> BTreeSet<(u32, String)> {
    let of = |pid: i32| {
        let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let net = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        Some((uid, net.to_str()?.to_owned()))
    };
    tenants(service.pid()).iter().filter_map(|tenant| of(tenant.pid)).collect()
}

fn figure(service: &Service, name: &str) -> f64 {
    Exposition::parse(&service.get("/metrics").body).get(name, &[])
}

/// Lets a run reach its time limit while one of its processes is held. Returns the hold, the uid
/// and network namespace of the run, and how long its answer took.
fn run_undying(service: &Service) -> (Held, (u32, String), Duration) {
    thread::scope(|scope| {
        let began = Instant::now();
        let run = scope.spawn(|| service.post(&solution_within("2s", "sleep 600; true")));
        wait_until("the program", SOON, || is_running(service.pid(), "sleep"));
        let program = *tenants(service.pid()).iter().max_by_key(|tenant| tenant.pid).unwrap();
        let identity = identities(service).pop_first().unwrap();
        let held = Held::from_dying(program.pid);
        let answer = run.join().unwrap();
        assert_ne!(answer.finished().exit_code, Some(0), "{answer:?}");
        (held, identity, began.elapsed())
    })
}

#[test]
fn an_unkillable_sandbox_keeps_its_uid_namespace_and_slot_until_it_dies() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "2").env("STANDBY_MAX", "0").start();
    let (held, (uid, net), took) = run_undying(&service);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let live = service.live("sleep 600");
        seen.extend(identities(&service));
        // The run that does not die still holds its slot.
        service.run("true").assert_json(429, BUSY);
        drop(live);
        wait_until("the end of the run", SOON, || {
            figure(&service, "cofferdam_slots_in_use") == 1.0
        });
    }
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|(other, _)| *other != uid), "{uid} was reused: {seen:?}");
    assert!(seen.iter().all(|(_, other)| *other != net), "{net} was reused: {seen:?}");
    // The service waits once for the sandbox, not twice.
    assert!(took >= KILL_WAIT && took < WALL + 2 * KILL_WAIT, "{took:?}");
    assert_eq!(figure(&service, "cofferdam_undying_boxes"), 1.0);
    assert_eq!(figure(&service, "cofferdam_kill_failures_total"), 1.0);
    drop(held);
    wait_until("the sandbox to die", SOON, || figure(&service, "cofferdam_undying_boxes") == 0.0);
    wait_until("the slot to be free", SOON, || figure(&service, "cofferdam_slots_in_use") == 0.0);
    wait_until("the cleanup to finish", SOON, || {
        figure(&service, "cofferdam_cleanup_backlog") == 0.0
    });
    let [_one, _two] = [service.live("sleep 600"), service.live("sleep 600")];
    service.run("true").assert_json(429, BUSY);
    service.log.wait_for("not dead");
}

#[test]
fn a_server_stops_in_time_despite_an_unkillable_sandbox() {
    let mut service = Setup::shell()
        .env("RUN_CONCURRENCY", "1")
        .env("STANDBY_MAX", "0")
        .env("SHUTDOWN_GRACE", "1s")
        .start();
    let (_held, _, _) = run_undying(&service);
    service.signal(nix::sys::signal::Signal::SIGTERM);
    service.wait_end(SOON);
}
