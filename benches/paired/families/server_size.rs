//! A large server compared with a small one: memory of the server must not slow its runs.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::Client;
use cofferdam_test_server::host::resident_bytes;
use cofferdam_test_server::service::{Service, Setup, wait_until};

use crate::bare;
use crate::report::{Report, Table};
use crate::runner::Runner;
use crate::stats::{Pairs, millis};

const MB: u64 = 1_000_000;
const SMALL_MB: u64 = 20;
const LARGE_MB: [u64; 3] = [100, 250, 500];
const BODY_BYTES: usize = 8 << 20;
/// Far more bodies than needed.
const BODIES_MAX: usize = 400;
/// The number of unchanged measurements after which a body has arrived.
const LOOKS: usize = 5;
/// A body that takes longer misses its deadline and is refused.
const HELD_MAX: Duration = Duration::from_secs(12);
/// Pairs between two checks of the clock.
const ROUND_PAIRS: usize = 25;

pub fn measure(report: &mut Report) {
    let (small, large) = (service(), service());
    let mut rows = Vec::new();
    for size_mb in LARGE_MB {
        let pairs = compare(&large, size_mb, &small, report.pairs);
        rows.push(vec![size_mb as f64, pairs.first(), pairs.second(), pairs.ratio().median]);
        if size_mb == LARGE_MB[LARGE_MB.len() - 1] {
            report.paired("server_size", &pairs);
        }
    }
    report.table(Table {
        key: "server_size",
        title: "Size of the server",
        columns: &["server of MB", "its run, ms", "run by one of 20 MB, ms", "ratio"],
        rows,
    });
}

fn service() -> Service {
    let input_max = format!("{}", 2 * BODY_BYTES);
    let bodies_max = format!("{}", 2 * MB * LARGE_MB[LARGE_MB.len() - 1]);
    Setup::of(bare::workspace(":", 10, 4096))
        .env("RUN_INPUT_MAX", input_max)
        .env("HTTP_BODIES_MAX", bodies_max)
        .start()
}

fn compare(large: &Service, size_mb: u64, small: &Service, count: usize) -> Pairs {
    let mut runners = (Runner::of(large), Runner::of(small));
    let mut pairs = Pairs::default();
    let mut held = hold_both(large, size_mb, small);
    let mut left = count;
    while left > 0 {
        if held.since.elapsed() > HELD_MAX {
            drop(held);
            held = hold_both(large, size_mb, small);
        }
        let round = left.min(ROUND_PAIRS);
        let taken = Pairs::take(
            round,
            || millis(|| _ = runners.0.run()),
            || millis(|| _ = runners.1.run()),
        );
        // The servers still had their size at the end.
        held.assert_there();
        pairs.extend(taken);
        left -= round;
    }
    pairs
}

/// Incomplete requests whose bodies the servers hold.
struct Held<'a> {
    since: Instant,
    sizes: [(&'a Service, u64); 2],
    _clients: Vec<Client>,
}

fn hold_both<'a>(large: &'a Service, size_mb: u64, small: &'a Service) -> Held<'a> {
    let since = Instant::now();
    let sizes = [(large, size_mb), (small, SMALL_MB)];
    let clients = sizes.iter().flat_map(|(service, mb)| grow(service, mb * MB)).collect();
    let held = Held { since, sizes, _clients: clients };
    held.assert_there();
    held
}

impl Held<'_> {
    fn assert_there(&self) {
        for (service, size_mb) in &self.sizes {
            let resident = resident_bytes(service.pid());
            assert!(resident >= size_mb * MB, "{resident} bytes are not {size_mb} MB");
        }
    }
}

/// Sends bodies without their ends until the server has `bytes` in memory.
fn grow(service: &Service, bytes: u64) -> Vec<Client> {
    let head = format!("POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    let mut clients = Vec::new();
    loop {
        let resident = settled_bytes(service.pid());
        if resident >= bytes {
            return clients;
        }
        assert!(clients.len() < BODIES_MAX, "{BODIES_MAX} bodies are only {resident} bytes");
        let missing = usize::try_from(bytes - resident).unwrap();
        let mut client = service.connect();
        client.send(&head);
        client.send(vec![b' '; missing.clamp(BODY_BYTES / 8, BODY_BYTES - 1)]);
        clients.push(client);
    }
}

/// The resident memory once the last body has arrived. A body reuses memory freed by the growth of
/// the one before, so no particular size shows its arrival.
fn settled_bytes(pid: i32) -> u64 {
    let (mut resident, mut same) = (0, 0);
    wait_until("a body to be in memory", Duration::from_secs(10), || {
        let now = resident_bytes(pid);
        same = if now == resident { same + 1 } else { 0 };
        resident = now;
        same == LOOKS
    });
    resident
}
