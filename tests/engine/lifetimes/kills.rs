//! A service that is killed at any moment while a workspace is written, saved, parked and woken.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use cofferdam_test_server::host::{Footprint, has_process};
use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::PATIENCE;
use super::parked::kept;
use crate::exchange::try_ask;
use crate::scene::{EngineScene, scene};

/// The number of kills, if `PERSISTENCE_KILLS` names no other.
const KILLS: u64 = 10;
/// Write `n` replaces file `n % FILES`.
const FILES: u64 = 3;
/// The longest life of a service, milliseconds.
const LIFE_MS_MAX: u64 = 700;

/// The contents of write `number`: no two writes have the same, and half of one is not one.
fn contents(number: u64) -> Vec<u8> {
    let length = 500 + usize::try_from(number % 7).unwrap() * 20_000;
    format!("{number:012}\n").repeat(length).into_bytes()
}

/// What the writer has done.
#[derive(Debug, Default)]
struct Written {
    /// The last write that was sent.
    sent: AtomicU64,
    /// The last write that a save or a parking holds, which was answered.
    saved: AtomicU64,
    stop: AtomicBool,
}

impl Written {
    /// Writes, saves and parks until the service is gone.
    fn work(&self, address: SocketAddr, workspace: &str) {
        while !self.stop.load(Ordering::Acquire) {
            let number = self.sent.fetch_add(1, Ordering::AcqRel) + 1;
            let target = format!("{workspace}/files?path=work/{}", number % FILES);
            let Some(put) = try_ask(address, "PUT", &target, "", &contents(number)) else { return };
            assert!(matches!(put.status, 200 | 201), "{}", put.json());
            let ends = match number % 11 {
                3 | 7 => try_ask(address, "POST", &format!("{workspace}/save"), "", b"{}"),
                10 => try_ask(address, "DELETE", workspace, "", b""),
                _ => continue,
            };
            let Some(ended) = ends else { return };
            assert_eq!(ended.status, 200, "{}", ended.json());
            self.saved.store(number, Ordering::Release);
        }
    }
}

/// The last write that the files hold. They are as they were right after it.
fn state(scene: &EngineScene, workspace: &str) -> u64 {
    let numbers = (0..FILES).map(|file| {
        let reply = scene.get(&format!("{workspace}/files?path=work/{file}"));
        if reply.status == 404 {
            return 0;
        }
        assert_eq!(reply.status, 200, "{}", reply.json());
        let number = String::from_utf8_lossy(&reply.body[..12]).parse().unwrap();
        assert!(reply.body == contents(number), "file {file} is torn");
        number
    });
    let numbers: Vec<u64> = numbers.collect();
    let last = *numbers.iter().max().unwrap();
    for (file, number) in (0..).zip(&numbers) {
        let expected = (0..=last).rev().find(|number| number % FILES == file && *number > 0);
        assert_eq!(*number, expected.unwrap_or(0), "file {file} is of another moment: {numbers:?}");
    }
    last
}

/// Asserts that the store holds complete saves only.
fn assert_swept(store: &Path) {
    for saved in fs::read_dir(store.join("workspaces")).unwrap() {
        let saved = saved.unwrap().path();
        let names = fs::read_dir(&saved).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        let manifests = names.iter().filter(|name| name.starts_with("manifest-")).count();
        assert_eq!((names.len(), manifests), (3, 1), "{}: {names:?}", saved.display());
        let extents = fs::read_dir(saved.join("extents")).unwrap().count();
        // Three files, the metadata, and what programs leave.
        assert!(extents <= 6, "{extents} extents are left");
    }
}

#[test]
fn a_killed_service_loses_only_what_came_after_the_last_save() {
    let kills = std::env::var("PERSISTENCE_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let Some(mut scene) = scene(&[("ENGINE_SAVE_EVERY", "60ms")]) else { return };
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap().lines().count();
    let before = mounts();
    let workspace = scene.create(&kept(&json!({})));
    let saved = scene.post(&format!("{workspace}/save"), &json!({}));
    assert_eq!(saved.status, 200);
    let written = Written::default();
    let mut random = u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    eprintln!("the moments come from {random}");
    for kill in 0..kills {
        let marker = format!("31{kill}.{}", std::process::id());
        let body = json!({"cmd": "sleep", "args": [marker]});
        // Half of the saves are taken while a program runs.
        if kill % 2 == 0 {
            assert_eq!(scene.post(&format!("{workspace}/sessions"), &body).status, 201);
        }
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let life = Duration::from_millis((random >> 33) % LIFE_MS_MAX);
        let footprint = Footprint::of(scene.service.pid());
        let address = scene.service.address;
        written.stop.store(false, Ordering::Release);
        thread::scope(|scope| {
            let writer = scope.spawn(|| written.work(address, &workspace));
            thread::sleep(life);
            scene.service.kill();
            written.stop.store(true, Ordering::Release);
            writer.join().unwrap();
        });
        scene.kill_and_start();
        wait_until("the end of all processes", PATIENCE, || !has_process(&marker));
        wait_until("the end of the cgroups", PATIENCE, || footprint.is_gone());
        assert_eq!(mounts(), before);
        assert_swept(&scene.store());
        assert_eq!(scene.get(&workspace).json()["status"], "parked");
        let (saved, sent) =
            (written.saved.load(Ordering::Acquire), written.sent.load(Ordering::Acquire));
        let found = state(&scene, &workspace);
        assert!((saved..=sent).contains(&found), "{found} is not from {saved} to {sent}");
        eprintln!("kill {kill} after {life:?}: write {found} of {saved} (saved) to {sent}");
        // The next writes follow those that are there.
        written.sent.store(found, Ordering::Release);
        written.saved.store(found, Ordering::Release);
    }
    assert_eq!(scene.delete(&format!("{workspace}?purge=true")).status, 200);
    assert_eq!(fs::read_dir(scene.store().join("workspaces")).unwrap().count(), 0);
}
