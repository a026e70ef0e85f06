//! Runs whose client disconnects or whose server is killed.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post};
use cofferdam_test_server::host::{Footprint, mounts};
use cofferdam_test_server::service::{Service, best_of_three, wait_until};

use crate::Unexercised;
use crate::marker::Marker;
use crate::probe::Probe;
use crate::target::{CONCURRENCY, Own, Target};

/// A generous wait for a loaded machine.
const SOON: Duration = Duration::from_secs(20);
/// How soon the slot of a disconnected client is free again.
const FREE_WITHIN: Duration = Duration::from_millis(200);
/// How long tenants may outlive their server.
const DEAD_WITHIN: Duration = Duration::from_secs(1);
/// The number of programs that `tenacious.py` starts.
const TENACIOUS: usize = 8;

fn nothing(slug: &str) -> Vec<u8> {
    post("", Probe::inline("def probe():\n    return None").body(slug).to_string())
}

fn tenacious(slug: &str, marker: &Marker, headers: &str) -> Vec<u8> {
    post(headers, Probe::python("tenacious").arg(marker.word()).body(slug).to_string())
}

pub fn client_gone(target: &Target) -> Result<(), Unexercised> {
    let slug = target.slug();
    let marker = Marker::new();
    // More disconnecting clients than any service has slots.
    for _ in 0..4 {
        let mut clients: Vec<Client> = (0..CONCURRENCY).map(|_| target.connect()).collect();
        for client in &mut clients {
            client.send(tenacious(slug, &marker, ""));
        }
        thread::sleep(Duration::from_millis(200));
        drop(clients);
        thread::sleep(Duration::from_millis(300));
    }
    let answer = target.ask(nothing(slug));
    assert_eq!(answer.status, 200, "{answer:?}");
    let own = target.own()?;
    marker.assert_gone();

    let service = own.another().env("RUN_CONCURRENCY", "1").start();
    best_of_three(FREE_WITHIN, || free_after(&service, slug, "", drop));
    best_of_three(FREE_WITHIN, || free_after(&service, slug, "", Client::abort));
    let stream = "accept: text/event-stream\r\n";
    best_of_three(FREE_WITHIN, || free_after(&service, slug, stream, drop));
    Ok(())
}

/// Starts a run, disconnects, and returns how long after that the next run is accepted.
fn free_after(service: &Service, slug: &str, headers: &str, leave: fn(Client)) -> Duration {
    let marker = Marker::new();
    let mut client = service.connect();
    client.send(tenacious(slug, &marker, headers));
    wait_until("the run", SOON, || marker.bearers().len() >= TENACIOUS);
    let next = nothing(slug);
    assert_eq!(service.ask(&next).status, 429, "the only slot was free");
    leave(client);
    let gone = Instant::now();
    loop {
        let asked = gone.elapsed();
        let answer = service.ask(&next);
        if answer.status == 200 {
            marker.assert_gone();
            return asked;
        }
        assert!(answer.status == 429 && asked < SOON, "{answer:?}");
    }
}

pub fn server_killed(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    best_of_three(DEAD_WITHIN, || dead_after(own, target.slug()));
    Ok(())
}

/// Kills a server with live runs, and returns how long its tenants outlive it.
fn dead_after(own: &Own, slug: &str) -> Duration {
    let marker = Marker::new();
    let mounts_before = mounts(1);
    let mut service = own.another().start();
    let footprint = Footprint::of(service.pid());
    let _clients: [Client; 2] = [(); 2].map(|()| {
        let mut client = service.connect();
        client.send(tenacious(slug, &marker, ""));
        client
    });
    wait_until("the runs", SOON, || marker.bearers().len() >= 2 * TENACIOUS);
    service.kill();
    let killed = Instant::now();
    wait_until("the tenants' death", SOON, || marker.bearers().is_empty());
    let took = killed.elapsed();

    let next = own.another().start();
    // Another server that starts at the same time may do the cleanup.
    wait_until("the sweep", SOON, || footprint.is_gone());
    assert!(mounts(1) <= mounts_before, "mounts are left");
    assert_eq!(next.ask(nothing(slug)).status, 200);
    took
}
