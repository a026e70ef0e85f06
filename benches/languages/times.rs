//! The times of one language: a run whose program begins at the request, one in a runtime started
//! ahead, and a bare `make test`, one after the other.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::service::Service;

use crate::ahead::{self, Ahead};
use crate::bare::{BareRoot, Workspace};
use crate::posts::Example;

/// The pause before each timing, so that it does not include cleanup of the one before.
const PAUSE: Duration = Duration::from_millis(5);

/// Where a language is measured.
pub struct Places<'a> {
    /// The service with `PRESTART=off`.
    pub cold: &'a Service,
    pub ahead: &'a Ahead,
    pub bare: &'a BareRoot,
    pub workspace: Workspace,
}

/// All times of a language, in milliseconds.
pub struct Times {
    /// The first run after the page cache was emptied.
    pub first_ms: f64,
    pub rounds: Vec<Round>,
}

/// What one round took, in milliseconds.
pub struct Round {
    pub bare_ms: f64,
    pub cold_ms: f64,
    pub cold: Answer,
    /// `None` where no runtime was used.
    pub ahead_ms: Option<f64>,
    /// From the answer until a runtime is ready again; `None` if none got ready.
    pub again: Option<Duration>,
}

impl Times {
    pub fn take(places: &Places<'_>, example: &Example, rounds: usize) -> Self {
        // The page cache holds nothing of the toolchain.
        nix::unistd::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let (first_ms, _) = example.posted(places.cold);
        // One of each first, so that the first round is as warm as the others.
        places.bare.make_test(&places.workspace);
        let has_target = ahead::has_target(&example.slug);
        if has_target {
            example.posted(&places.ahead.service);
        }
        let mut is_ready = has_target && places.ahead.ready(&example.slug, 1).is_some();
        let round = |number| {
            let round = Round::take(places, example, number, is_ready);
            // What did not get ready is not waited for again.
            is_ready &= round.again.is_some();
            round
        };
        Self { first_ms, rounds: (0..rounds).map(round).collect() }
    }
}

impl Round {
    /// The order of the three differs from round to round.
    fn take(places: &Places<'_>, example: &Example, number: usize, with_ahead: bool) -> Self {
        let (mut bare_ms, mut cold, mut ahead) = (0.0, None, (None, None));
        for turn in 0..3 {
            thread::sleep(PAUSE);
            match (number + turn) % 3 {
                0 => bare_ms = places.bare.make_test(&places.workspace),
                1 => cold = Some(example.posted(places.cold)),
                _ if with_ahead => ahead = posted_ahead(places.ahead, example),
                _ => {}
            }
        }
        let (cold_ms, cold) = cold.unwrap();
        let (ahead_ms, again) = ahead;
        Self { bare_ms, cold_ms, cold, ahead_ms, again }
    }
}

/// How long a run took if it used a runtime, and the time until another was ready. Waits for the
/// latter, which would disturb what is timed next.
fn posted_ahead(ahead: &Ahead, example: &Example) -> (Option<f64>, Option<Duration>) {
    let ((took_ms, _), used) = ahead.counting_used(|| example.posted(&ahead.service));
    let began = Instant::now();
    let again = ahead.ready(&example.slug, 1).map(|_| began.elapsed());
    ((used > 0).then_some(took_ms), again)
}
