//! The cost of attacks on the real service: memory, threads, descriptors and delays for others.
//!
//! Each test prints one row of a table; `cargo test --test http_front footprint -- --nocapture
//! --test-threads 1` shows it.

mod attacks;
mod usage;

use std::time::Duration;

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::host::in_turn;
use cofferdam_test_server::service::{Service, Setup, wait_until};

use usage::{Held, Peak, Probe, ServerUsage, watch};

/// How long a probe of another client may take during an attack.
const HEALTH_WITHIN: Duration = Duration::from_millis(100);
/// Threads that served an admission stay for ten seconds for the next one.
const SETTLED_WITHIN: Duration = Duration::from_secs(40);
/// Memory that may remain after an attack.
const KEPT_BYTES_MAX: u64 = 12 * MIB;
const MIB: u64 = 1 << 20;

/// An attack and its allowed cost.
struct Attack {
    name: &'static str,
    probe: Probe,
    /// The allowed growth of memory, threads and descriptors.
    growth_max: ServerUsage,
    attack: fn(&Service) -> Held,
}

impl Attack {
    fn on(name: &'static str, attack: fn(&Service) -> Held) -> Self {
        // Two threads for each of the eight concurrent runs, and four to admit them.
        let growth_max = ServerUsage { resident_bytes: 24 * MIB, threads: 20, descriptors: 250 };
        Self { name, probe: Probe::Fresh, growth_max, attack }
    }

    /// Tries three times, since a busy machine may delay probes; all other limits hold every time.
    #[track_caller]
    fn withstand(self) {
        let _alone = alone();
        let mut waited = Vec::new();
        for _ in 0..3 {
            waited.push(self.try_once().health_max);
            if waited.last().is_some_and(|longest| *longest < HEALTH_WITHIN) {
                return;
            }
        }
        panic!("{}: probes waited up to {waited:?}", self.name);
    }

    #[track_caller]
    fn try_once(&self) -> Peak {
        let service = Setup::shell().start();
        // Resources that the first runs allocate permanently do not count.
        drop((0..8).map(|_| service.live("sleep 60")).collect::<Vec<_>>());
        assert_eq!(service.run("echo before").stdout(), "before\n");
        let before = ServerUsage::settled(&service);
        let (held, peak) = watch(&service, self.probe, || (self.attack)(&service));
        self.show(&before, &peak);
        let growth = peak.usage.growth_since(&before);
        assert!(growth.is_within(&self.growth_max), "{}: grew by {growth:?}", self.name);
        drop(held);
        assert_eq!(service.run("echo right").stdout(), "right\n");
        wait_until("the usage before the attack", SETTLED_WITHIN, || {
            let now = ServerUsage::of(&service);
            now.threads <= before.threads
                && now.descriptors <= before.descriptors
                && now.resident_bytes <= before.resident_bytes + KEPT_BYTES_MAX
        });
        peak
    }

    fn show(&self, before: &ServerUsage, peak: &Peak) {
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        println!(
            "{:28} RSS {:5.1} -> {:6.1} MiB, threads {:2} -> {:3}, fds {:3} -> {:4}, health max {:6.1} ms of {}",
            self.name,
            mib(before.resident_bytes),
            mib(peak.usage.resident_bytes),
            before.threads,
            peak.usage.threads,
            before.descriptors,
            peak.usage.descriptors,
            peak.health_max.as_secs_f64() * 1e3,
            peak.probes,
        );
    }
}

#[test]
fn two_hundred_slow_heads_cost_little() {
    Attack::on("200 slow heads", attacks::slow_heads).withstand();
}

#[test]
fn two_hundred_slow_bodies_cost_little() {
    Attack::on("200 slow bodies", attacks::slow_bodies).withstand();
}

#[test]
fn a_thousand_unfinished_bodies_cost_little_and_block_no_client() {
    let mut attack = Attack::on("1000 unfinished bodies", attacks::unfinished_bodies);
    // The limit of all bodies together (HTTP_BODIES_MAX and half of it), and the buffers of each
    // connection.
    attack.growth_max.resident_bytes = 96 * MIB + 1000 * 96 * 1024;
    attack.growth_max.descriptors = 1100;
    attack.withstand();
}

#[test]
fn a_burst_of_runs_leaves_no_memory_behind() {
    let _alone = alone();
    let service = Setup::shell().env("RUN_CONCURRENCY", "32").start();
    assert_eq!(service.run("echo before").stdout(), "before\n");
    let before = ServerUsage::settled(&service);
    in_turn(32, 320, |_| {
        let output = service.run("head -c 300000 /dev/zero | tr '\\0' x").stdout();
        assert_eq!(output.len(), 300_000);
    });
    wait_until("the usage before the attack", SETTLED_WITHIN, || {
        let now = ServerUsage::of(&service);
        now.resident_bytes <= before.resident_bytes + KEPT_BYTES_MAX
    });
}

#[test]
fn slow_clients_cost_little_beside_live_runs() {
    let mut attack = Attack::on("400 slow beside 8 runs", attacks::slow_beside_runs);
    attack.growth_max.descriptors = 650;
    attack.withstand();
}

#[test]
fn exhausted_descriptors_cost_little_and_recover() {
    let mut attack = Attack::on("no descriptors", attacks::exhaustion);
    // A client that is not accepted gets no answer; an accepted one does.
    attack.probe = Probe::Kept;
    attack.withstand();
}

#[test]
fn an_endless_header_line_costs_little() {
    Attack::on("200 MB header line", attacks::endless_line).withstand();
}

#[test]
fn a_hundred_thousand_headers_cost_little() {
    Attack::on("100000 headers", attacks::many_headers).withstand();
}

#[test]
fn repeated_ambiguous_framing_costs_little() {
    Attack::on("doubtful framing", attacks::doubtful_framing).withstand();
}

#[test]
fn smuggled_requests_cost_little_and_run_nothing() {
    Attack::on("hidden requests", attacks::hidden_requests).withstand();
}

#[test]
fn truncated_bodies_cost_little() {
    Attack::on("bodies cut short", attacks::cut_bodies).withstand();
}

#[test]
fn large_unread_answers_cost_little() {
    let mut attack = Attack::on("unread answers", attacks::unread_answers);
    // The limit of all answers together, and ten answers under construction.
    attack.growth_max.resident_bytes = 384 * MIB;
    attack.withstand();
}

#[test]
fn two_thousand_resets_cost_little() {
    let mut attack = Attack::on("2000 resets", attacks::resets);
    // As many at once as the limit on connections.
    attack.growth_max.descriptors = 1024;
    attack.withstand();
}

#[test]
fn a_flood_of_pipelined_requests_costs_little() {
    Attack::on("pipelined flood", attacks::pipelined_flood).withstand();
}

#[test]
fn a_flood_of_chunk_extensions_costs_little() {
    Attack::on("chunk extensions", attacks::chunk_extensions).withstand();
}

#[test]
fn compressed_bodies_cost_little() {
    Attack::on("compressed bodies", attacks::compressed_bodies).withstand();
}

#[test]
fn a_storm_of_expectations_costs_little() {
    let mut attack = Attack::on("Expect storm", attacks::expect_storm);
    attack.growth_max.descriptors = 450;
    attack.withstand();
}
