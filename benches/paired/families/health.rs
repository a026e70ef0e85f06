//! `/health` while the service has busy runs and many slow clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::Client;
use cofferdam_test_server::service::{Service, Setup};

use crate::report::Report;
use crate::stats::{Spread, as_millis, quantile};

const BUSY_RUNS: usize = 8;
const SLOW_CLIENTS_OF_A_KIND: usize = 200;
const SLOW_HEAD: &str = "POST /run HTTP/1.1\r\nhost: x\r\nx-slow: ";
const SLOW_BODY: &str = "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
/// Each slow client sends a byte this often.
const DRIP_EVERY: Duration = Duration::from_millis(500);
const PROBE_EVERY: Duration = Duration::from_millis(5);
const PROBES_PER_PAIR: usize = 10;
/// Measured from the first slow client; a slow head is refused two seconds later.
const PROBING_MAX: Duration = Duration::from_secs(8);

pub fn measure(report: &mut Report) {
    let service = Setup::shell().start();
    let alone = probes(&service, report.pairs, Instant::now());
    let runs: Vec<Client> = (0..BUSY_RUNS).map(|_| service.live("while :; do :; done")).collect();
    let began = Instant::now();
    let mut slow = slow_clients(&service);
    let over = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                // A refused client would reduce the load.
                let attached = slow.iter_mut().all(|client| client.try_send(" "));
                assert!(attached, "a slow client was refused");
                thread::sleep(DRIP_EVERY);
            }
        });
        let beside = probes(&service, report.pairs, began);
        over.store(true, Ordering::SeqCst);
        beside
    });
    drop((runs, slow));
    let p99 = quantile(beside.iter().copied(), 0.99);
    let value = Spread { median: p99, ..Spread::of(beside.into_iter()) };
    report.row("health_p99", p99, quantile(alone.into_iter(), 0.99), value);
}

fn slow_clients(service: &Service) -> Vec<Client> {
    let each = [SLOW_HEAD, SLOW_BODY].into_iter().cycle().take(2 * SLOW_CLIENTS_OF_A_KIND);
    let start = |begun: &str| {
        let mut client = service.connect();
        client.send(begun);
        client
    };
    each.map(start).collect()
}

/// The durations of probes, each on a new connection.
fn probes(service: &Service, pairs: usize, began: Instant) -> Vec<f64> {
    let mut taken = Vec::new();
    while taken.len() < pairs * PROBES_PER_PAIR && began.elapsed() < PROBING_MAX {
        let asked = Instant::now();
        let answer = service.get("/health");
        taken.push(as_millis(asked.elapsed()));
        assert_eq!(answer.status, 200, "{answer:?}");
        thread::sleep(PROBE_EVERY);
    }
    taken
}
