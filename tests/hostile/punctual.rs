//! Answers within 50 ms of a run's limit.

use std::time::{Duration, Instant};

use super::observe::outcome_is;
use super::probe::Probe;
use super::target::Target;

/// The documented guarantee.
const LATE_MAX: Duration = Duration::from_millis(50);
/// The preparation time assumed for a service that does not report it.
const UNTOLD_MAX: Duration = Duration::from_secs(1);
/// Attempts, of which the best counts: the machine may be busy.
const ATTEMPTS: usize = 4;

/// Asserts that `probe`, which never ends, is answered at most 50 ms later than
/// a run that only sleeps.
#[track_caller]
pub fn assert_is_answered_in_time(target: &Target, probe: &Probe, limit: Duration) {
    let sleeper = Probe::inline("import time\ndef probe(): time.sleep(60)");
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        let (idle, _) = lateness(target, &sleeper, Duration::from_millis(300));
        let (hostile, timing) = lateness(target, probe, limit);
        if hostile <= idle + LATE_MAX {
            return;
        }
        late.push((hostile, timing, idle));
    }
    panic!("answered late (and a sleeper): {late:?}");
}

/// How long after its limit the run is answered, and the timings that the service reports.
#[track_caller]
fn lateness(target: &Target, probe: &Probe, limit: Duration) -> (Duration, String) {
    let probe = probe.clone().within(&format!("{}ms", limit.as_millis()));
    let request = target.request(&probe);
    let start = Instant::now();
    let answer = target.ask(request);
    let took = start.elapsed();
    assert_eq!(answer.finished().exit_code, None, "{answer:?}");
    outcome_is(&answer, "timed_out");
    let before = match answer.header("server-timing") {
        Some(_) => {
            let millis = answer.timing_ms("queue") + answer.timing_ms("prepare");
            Duration::from_secs_f64(millis / 1e3)
        }
        None => UNTOLD_MAX,
    };
    let timing = answer.header("server-timing").unwrap_or_default().to_owned();
    (took.saturating_sub(before).saturating_sub(limit), timing)
}
