//! `/health` while the service has busy runs and many slow clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::Client;
use cofferdam_test_server::service::{Service, Setup};

use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, Spread, as_millis, millis, quantile};

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

/// Clients of `/run`, and as many bare `make test` as their counterpart.
const CLIENTS: usize = 8;
/// Of each kind in each pair, enough for a 99th percentile.
const DELAYS: usize = 200;
const SLEEP: Duration = Duration::from_millis(1);
/// Until all clients are at work.
const LEAD_IN: Duration = Duration::from_millis(100);

pub fn measure(report: &mut Report) {
    beside_slow_clients(report);
    over_wake_up(report);
}

fn beside_slow_clients(report: &mut Report) {
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

/// Measures `/health` without the delay that every process has on a machine this busy.
fn over_wake_up(report: &mut Report) {
    let service = Setup::of(bare::workspace(":", 10, 4096)).start();
    let path = service.workspace().path();
    let client = || {
        let mut runner = Runner::of(&service);
        move || _ = runner.run()
    };
    let health = || beside(client, || millis(|| _ = service.get("/health")));
    let delay = || {
        beside(|| || bare::make_test(path), || millis(|| thread::sleep(SLEEP)) - as_millis(SLEEP))
    };
    let mut pairs = Pairs::default();
    for pair in 0..report.pairs {
        let (health, delay) = if pair % 2 == 0 {
            let health = health();
            (health, delay())
        } else {
            let delay = delay();
            (health(), delay)
        };
        pairs.push(health, delay);
    }
    report.paired("health_wake_up", &pairs);
}

/// The 99th percentile of what `probe` measures while clients work without a pause.
fn beside<W: FnMut()>(client: impl Fn() -> W + Sync, probe: impl Fn() -> f64) -> f64 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut work = client();
                while !over.load(Ordering::SeqCst) {
                    work();
                }
            });
        }
        let _over = Over(&over);
        thread::sleep(LEAD_IN);
        let delays = (0..DELAYS).map(|_| {
            thread::sleep(SLEEP);
            probe()
        });
        quantile(delays, 0.99)
    })
}

/// Ends the clients, also when a probe fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
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
