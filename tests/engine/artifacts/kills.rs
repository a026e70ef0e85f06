//! A service that is killed while 200 clients save one artifact: no version is given twice, none is
//! torn, and none that was answered is lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cofferdam_core::values::digest::sha256_of;
use cofferdam_test_server::service::wait_until;
use serde_json::json;
use tempfile::tempdir;

use crate::exchange::{ask, engine_server, try_ask};

const CLIENTS: usize = 200;
const KILLS: usize = 10;
/// How many saves are answered between two kills.
const ANSWERS_PER_LIFE: usize = 25;
const PATIENCE: Duration = Duration::from_secs(120);

/// The bytes of a save: no two saves have the same, and half of one is not one.
fn bytes_of(number: usize) -> Vec<u8> {
    let line = format!("{number:08}\n");
    line.repeat(2000 + number % 500).into_bytes()
}

/// What the clients share.
struct Clients {
    address: Mutex<SocketAddr>,
    next: AtomicUsize,
    /// The number of the save by the version that it was answered with.
    answered: Mutex<BTreeMap<u64, usize>>,
    stop: AtomicBool,
}

impl Clients {
    fn answers(&self) -> usize {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn save_until_stopped(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let address = *self.address.lock().unwrap();
            let saved = try_ask(address, "POST", "/v1/artifacts/a", "", &bytes_of(number));
            let Some(saved) = saved else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            assert_eq!(saved.status, 201, "{}", saved.json());
            let saved = saved.json();
            assert_eq!(saved["sha256"], sha256_of(&bytes_of(number)));
            let version = saved["version"].as_u64().unwrap();
            let before = self.answered.lock().unwrap().insert(version, number);
            assert_eq!(before, None, "version {version} was given twice");
        }
    }
}

#[test]
fn saves_survive_kills_of_the_service() {
    let directory = tempdir().unwrap();
    let mut service = engine_server(directory.path()).start();
    let clients = Clients {
        address: Mutex::new(service.address),
        next: AtomicUsize::new(0),
        answered: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let savers: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| clients.save_until_stopped())).collect();
        for _ in 0..KILLS {
            let goal = clients.answers() + ANSWERS_PER_LIFE;
            let failed = || savers.iter().any(thread::ScopedJoinHandle::is_finished);
            wait_until("answers", PATIENCE, || clients.answers() >= goal || failed());
            service.kill();
            service = engine_server(directory.path()).start();
            *clients.address.lock().unwrap() = service.address;
        }
        clients.stop.store(true, Ordering::Release);
    });
    let answered = clients.answered.into_inner().unwrap();
    let versions = ask(&service, "GET", "/v1/artifact-versions/a", "", b"").json();
    let versions: Vec<u64> = serde_json::from_value(versions["versions"].clone()).unwrap();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    for (version, number) in &answered {
        assert!(versions.binary_search(version).is_ok(), "version {version} of {number} is lost");
    }
    for version in &versions {
        let sent = ask(&service, "GET", &format!("/v1/artifacts/a?version={version}"), "", b"");
        assert_eq!(sent.status, 200, "version {version}");
        let number: usize = String::from_utf8_lossy(&sent.body[..8]).parse().unwrap();
        assert!(sent.body == bytes_of(number), "version {version} is torn");
        let etag = format!("\"{}\"", sha256_of(&sent.body));
        assert_eq!(sent.header("etag"), Some(etag.as_str()));
        assert!(answered.get(version).is_none_or(|of| *of == number), "version {version}");
    }
    let last = *versions.last().unwrap();
    assert_eq!(ask(&service, "DELETE", "/v1/artifacts/a", "", b"").status, 204);
    service.kill();
    service = engine_server(directory.path()).start();
    let next = ask(&service, "POST", "/v1/artifacts/a", "", b"x").json();
    assert_eq!(next["version"], json!(last + 1));
    eprintln!("{} versions, {} answered, {KILLS} kills", versions.len(), answered.len());
}
