//! Posts the example of a language and asserts the right answer.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use cofferdam_test_server::client::{Answer, post};
use cofferdam_test_server::service::Service;
use cofferdam_test_server::shipped::Language;
use cofferdam_test_server::vector::{EXAMPLE, Vector};

use crate::ahead::Ahead;

/// Enough for the last run of a burst on a slow machine.
const TIMEOUT: &str = "4m";

/// The example of a language.
pub struct Example {
    pub slug: String,
    vector: Vector,
    request: Vec<u8>,
}

impl Example {
    pub fn of(slug: &str, language: &Language) -> Self {
        let vector = Vector::read(slug, EXAMPLE).within(TIMEOUT);
        let request = post("", vector.request(slug, language).to_string());
        Self { slug: slug.to_owned(), vector, request }
    }

    /// The milliseconds of one run, on a connection of its own, and its answer.
    pub fn posted(&self, service: &Service) -> (f64, Answer) {
        self.posted_after(service, || {})
    }

    /// As [`Example::posted`], with a wait between the connection and the request.
    fn posted_after(&self, service: &Service, wait: impl FnOnce()) -> (f64, Answer) {
        let mut client = service.connect();
        wait();
        let began = Instant::now();
        let answer = client.ask(&self.request);
        let took_ms = began.elapsed().as_secs_f64() * 1_000.0;
        let answer = self.vector.holds(answer);
        (took_ms, answer.unwrap_or_else(|why| panic!("{}: {why}", self.slug)))
    }

    /// The milliseconds of each of `runs` runs that are posted at once.
    pub fn posted_at_once(&self, service: &Service, runs: usize) -> Vec<f64> {
        let barrier = Barrier::new(runs);
        let one = || self.posted_after(service, || _ = barrier.wait()).0;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..runs).map(|_| scope.spawn(one)).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        })
    }
}

/// Bursts of a language, and the runtimes that waited for them.
#[derive(Debug)]
pub struct Bursts {
    /// The memory of each runtime, in bytes.
    pub bytes_each: f64,
    /// How many runtimes each burst used.
    pub used: Vec<usize>,
    /// The milliseconds of all runs.
    pub taken_ms: Vec<f64>,
}

impl Bursts {
    /// Takes `count` bursts, each once as many runtimes wait as there may be. Returns nothing if they
    /// do not get ready.
    pub fn take(ahead: &Ahead, example: &Example, count: usize) -> Option<Self> {
        let runs = ahead.burst.runs;
        // As many runtimes are started as runs were live at once.
        example.posted_at_once(&ahead.service, runs);
        ahead.ready(&example.slug, ahead.burst.standby_max)?;
        let bytes_each = ahead.bytes_each(&example.slug);
        let mut bursts = Self { bytes_each, used: Vec::new(), taken_ms: Vec::new() };
        for _ in 0..count {
            ahead.ready(&example.slug, ahead.burst.standby_max)?;
            let (taken_ms, used) =
                ahead.counting_used(|| example.posted_at_once(&ahead.service, runs));
            bursts.used.push(used);
            bursts.taken_ms.extend(taken_ms);
        }
        Some(bursts)
    }
}
