//! How long neighbours and probes wait, quiet and beside a bomb, measured in one go.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::client::{Client, post, request, solution};
use crate::server::service::Service;

/// Runs that make a median.
const RUNS: usize = 15;
/// How many times as long as alone a neighbour may take.
const TIMES_MAX: u32 = 2;
/// And the one tick that the kernel may need to see that it is its turn: on a
/// kernel of 250 Hz that is as long as the whole of the short neighbour.
const TICK: Duration = Duration::from_millis(4);
/// How long a probe may take.
const HEALTH_WITHIN: Duration = Duration::from_millis(100);
/// Between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// The neighbour that is over at once.
const SHORT: &str = ":";
/// The neighbour that computes for fifty milliseconds.
const COMPUTING: &str = "exec python3 -Sc '
import time
while time.process_time() < 0.05: pass
'";

/// What one neighbour took, run after run.
#[derive(Debug, Default)]
struct Neighbour {
    quiet: Vec<Duration>,
    beside: Vec<Duration>,
}

impl Neighbour {
    fn is_within_bounds(&self) -> bool {
        median(&self.beside) <= TIMES_MAX * median(&self.quiet) + TICK
    }

    fn ratio(&self) -> f64 {
        median(&self.beside).as_secs_f64() / median(&self.quiet).as_secs_f64()
    }
}

/// The figures of one bomb.
#[derive(Debug, Default)]
pub struct Latency {
    short: Neighbour,
    computing: Neighbour,
    health_max: Duration,
}

impl Latency {
    /// Of a service that has nothing else to do, so far.
    pub fn quiet(service: &Service) -> Self {
        let mut latency = Self::default();
        latency.quiet_again(service);
        latency
    }

    /// Adds what the neighbours take with nothing beside them.
    pub fn quiet_again(&mut self, service: &Service) {
        self.short.quiet.extend(times(service, SHORT));
        self.computing.quiet.extend(times(service, COMPUTING));
    }

    /// Adds what they, and probes, take now.
    pub fn beside(&mut self, service: &Service) {
        let over = AtomicBool::new(false);
        self.health_max = thread::scope(|scope| {
            let probing = scope.spawn(|| longest_probe(service, &over));
            self.short.beside.extend(times(service, SHORT));
            self.computing.beside.extend(times(service, COMPUTING));
            over.store(true, Ordering::SeqCst);
            probing.join().unwrap()
        });
    }

    pub fn is_within_bounds(&self) -> bool {
        self.short.is_within_bounds()
            && self.computing.is_within_bounds()
            && self.health_max <= HEALTH_WITHIN
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        for (name, neighbour) in [("short", &self.short), ("computing", &self.computing)] {
            let (quiet, beside) = (ms(median(&neighbour.quiet)), ms(median(&neighbour.beside)));
            write!(out, "{name} {quiet:5.1} -> {beside:6.1} ms = {:5.2}, ", neighbour.ratio())?;
        }
        write!(out, "health max {:5.1} ms", ms(self.health_max))
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

/// What some runs of `script` take, one after the other.
fn times(service: &Service, script: &str) -> Vec<Duration> {
    let request = post("", solution(script).to_string());
    let mut client = service.connect();
    let time = |_| {
        let start = Instant::now();
        let answer = client.ask(&request);
        let took = start.elapsed();
        assert_eq!(answer.stdout(), "");
        took
    };
    (0..RUNS).map(time).collect()
}

/// Probes the service until it is over.
fn longest_probe(service: &Service, over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::SeqCst) {
        let start = Instant::now();
        let answer = Client::connect(service.address).ask(request("GET", "/health", ""));
        longest = longest.max(start.elapsed());
        answer.assert_text(200, "ok\n");
        thread::sleep(PROBE_EVERY);
    }
    longest
}
