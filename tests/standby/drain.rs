//! During a drain prepared sandboxes are discarded at once, and runs end normally.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_test_server::client::solution;
use cofferdam_test_server::host::{
    Footprint, Process, descendants, host_id_files, ready_sandboxes,
};
use cofferdam_test_server::service::{Service, wait_until};
use nix::sys::signal::Signal;

use crate::ready::{PATIENCE, begin_in_one_of, shell_with, wait_ready};

/// A server with `count` prepared sandboxes.
fn server_with_ready(count: usize) -> Service {
    let service = shell_with(count).start();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| service.run("sleep 0.3; echo hi").stdout()))
            .collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), "hi\n");
        }
    });
    wait_ready(&service, count);
    service
}

/// Whether any process holds a lock on one of these files.
fn are_locked(files: &[PathBuf]) -> bool {
    use std::os::unix::fs::MetadataExt;
    let locks = fs::read_to_string("/proc/locks").unwrap();
    files.iter().any(|file| {
        // A clean shutdown may remove the file.
        let Ok(metadata) = fs::metadata(file) else { return false };
        locks.lines().any(|lock| lock.contains(&format!(":{} ", metadata.ino())))
    })
}

#[test]
fn a_drain_discards_prepared_sandboxes_but_not_runs_in_them() {
    let mut service = server_with_ready(3);
    let footprint = Footprint::of(service.pid());
    let ids = host_id_files(service.pid());
    assert!(ids.len() >= 3 && are_locked(&ids), "{ids:?}");
    let ready = ready_sandboxes(service.pid());
    let body = solution("sleep 3; echo ended; exit 3");
    let mut live = begin_in_one_of(&ready, &service, &body);
    wait_ready(&service, 3);
    let below = descendants(service.pid());
    service.signal(Signal::SIGTERM);
    service.wait_draining();
    wait_until("the prepared sandboxes to be discarded", Duration::from_millis(2_500), || {
        ready_sandboxes(service.pid()).is_empty()
    });
    assert_eq!(live.answer().finished().stdout, "ended\n");
    assert_eq!(service.wait_end(PATIENCE).code(), Some(0));
    footprint.assert_gone();
    assert!(!below.iter().any(Process::is_alive), "{below:?}");
    assert!(!are_locked(&ids), "{ids:?}");
}

#[test]
fn a_draining_server_prepares_no_sandbox() {
    let mut service = shell_with(3).start();
    let mut live = service.live("sleep 2");
    service.signal(Signal::SIGTERM);
    service.wait_draining();
    // Sandboxes that were being prepared when the drain began.
    wait_until("the prepared sandboxes to be discarded", PATIENCE, || {
        ready_sandboxes(service.pid()).is_empty()
    });
    for _ in 0..100 {
        assert_eq!(ready_sandboxes(service.pid()).len(), 0);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(String::from_utf8(live.rest()).unwrap().contains("exited"));
    assert_eq!(service.wait_end(PATIENCE).code(), Some(0));
}

#[test]
fn an_idle_server_with_prepared_sandboxes_stops_at_once_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut service = server_with_ready(2);
        let footprint = Footprint::of(service.pid());
        let (ids, below) = (host_id_files(service.pid()), descendants(service.pid()));
        assert!(below.len() >= 4, "{below:?}");
        service.signal(signal);
        assert_eq!(service.wait_end(Duration::from_secs(10)).code(), Some(0));
        footprint.assert_gone();
        assert!(!below.iter().any(Process::is_alive), "{below:?}");
        assert!(!are_locked(&ids), "{ids:?}");
    }
}

#[test]
fn prepared_sandboxes_die_with_a_killed_server() {
    let mut service = server_with_ready(2);
    let footprint = Footprint::of(service.pid());
    let below = descendants(service.pid());
    service.kill();
    wait_until("the processes to die", PATIENCE, || !below.iter().any(Process::is_alive));
    let next = shell_with(1).start();
    wait_until("the cleanup", PATIENCE, || footprint.is_gone());
    assert_eq!(next.run("echo hi").stdout(), "hi\n");
}
