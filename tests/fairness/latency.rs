//! How long neighbours, probes and a host command wait, without and with a bomb, measured together.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post, request, solution};
use cofferdam_test_server::service::Service;

use crate::host_command::HostCommand;

/// The number of runs per median.
const RUNS: usize = 11;
/// How many times longer than alone a neighbour may take.
const TIMES_MAX: u32 = 2;
/// And the one tick that the kernel may need to schedule it: on a 250 Hz kernel, that is as long as
/// the whole short neighbour.
const TICK: Duration = Duration::from_millis(4);
/// Or how many times the delay of a host command its delay may be. It needs a CPU about twice as
/// often, on its way from the server through a thread and the sandbox's init to the program and
/// back, and may wait each time.
const FLOOR_TIMES: u32 = 2;
/// How long a probe may take.
const HEALTH_WITHIN: Duration = Duration::from_millis(100);
/// The time between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// The neighbour that ends at once.
pub const SHORT: &str = ":";
/// The neighbour that computes for fifty milliseconds.
const COMPUTING: &str = "exec python3 -Sc '
import time
while time.process_time() < 0.05: pass
'";

/// A series of measured times.
#[derive(Debug, Default)]
struct Times {
    quiet: Vec<Duration>,
    beside: Vec<Duration>,
}

impl Times {
    /// Whether it took at most twice as long or, if that is more, at most `longer`, plus a tick.
    fn is_within_bounds(&self, longer: Duration) -> bool {
        let (quiet, beside) = (median(&self.quiet), median(&self.beside));
        beside <= (TIMES_MAX * quiet).max(quiet + longer) + TICK
    }

    /// How much longer than alone it took.
    fn held_up(&self) -> Duration {
        median(&self.beside).saturating_sub(median(&self.quiet))
    }
}

impl fmt::Display for Times {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quiet, beside) = (ms(median(&self.quiet)), ms(median(&self.beside)));
        write!(out, "{quiet:5.1} -> {beside:6.1} ms = {:5.2}", beside / quiet)
    }
}

/// The measurements of one bomb.
#[derive(Debug, Default)]
pub struct Latency {
    /// The command of the short neighbour without the service.
    bare: Times,
    short: Times,
    computing: Times,
    health_max: Duration,
}

impl Latency {
    /// The measurements of an otherwise idle service.
    pub fn quiet(service: &Service) -> Self {
        let mut latency = Self::default();
        latency.quiet_again(service);
        latency
    }

    /// Adds measurements without a bomb.
    pub fn quiet_again(&mut self, service: &Service) {
        let (bare, short) = in_turn(service);
        self.bare.quiet.extend(bare);
        self.short.quiet.extend(short);
        self.computing.quiet.extend(times(service, COMPUTING));
    }

    /// Adds measurements, with probes, of the current load.
    pub fn beside(&mut self, service: &Service) {
        let over = AtomicBool::new(false);
        self.health_max = thread::scope(|scope| {
            let probing = scope.spawn(|| longest_probe(service, &over));
            let (bare, short) = in_turn(service);
            self.bare.beside.extend(bare);
            self.short.beside.extend(short);
            self.computing.beside.extend(times(service, COMPUTING));
            over.store(true, Ordering::SeqCst);
            probing.join().unwrap()
        });
    }

    pub fn is_within_bounds(&self) -> bool {
        self.short.is_within_bounds(FLOOR_TIMES * self.bare.held_up())
            && self.computing.is_within_bounds(Duration::ZERO)
            && self.health_max <= HEALTH_WITHIN
    }
}

impl Latency {
    /// Whether neighbours take at most `times` as long as beside `control`, plus a tick, and probes
    /// are answered in time.
    pub fn is_within(&self, times: u32, control: &Self) -> bool {
        let is_within = |ours: &Times, theirs: &Times| {
            median(&ours.beside) <= times * median(&theirs.beside) + TICK
        };
        is_within(&self.short, &control.short)
            && is_within(&self.computing, &control.computing)
            && self.health_max <= HEALTH_WITHIN
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bare, short, computing, health_max } = self;
        write!(out, "short {short}, computing {computing}, bare {bare}, ")?;
        write!(out, "health max {:5.1} ms", ms(*health_max))
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

/// How long the short neighbour takes without and with the service, in turn, so that other load
/// affects both.
fn in_turn(service: &Service) -> (Vec<Duration>, Vec<Duration>) {
    let bare = HostCommand::beside(service);
    let request = post("", solution(SHORT).to_string());
    let mut client = service.connect();
    (0..RUNS).map(|_| (bare.time(), time(&mut client, &request))).unzip()
}

/// How long some consecutive runs of `script` take.
fn times(service: &Service, script: &str) -> Vec<Duration> {
    let request = post("", solution(script).to_string());
    let mut client = service.connect();
    (0..RUNS).map(|_| time(&mut client, &request)).collect()
}

/// How long one run takes, from the first byte of the request to the last byte of the answer.
fn time(client: &mut Client, request: &[u8]) -> Duration {
    let start = Instant::now();
    let answer = client.ask(request);
    let took = start.elapsed();
    assert_eq!(answer.stdout(), "");
    took
}

/// Probes the service until `over` is set.
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
