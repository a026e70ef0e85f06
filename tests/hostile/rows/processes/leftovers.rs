//! Processes that try to outlive their run.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::Answer;

use super::timed_out;
use crate::Unexercised;
use crate::marker::Marker;
use crate::observe::{assert_answers, observed, pairs_of};
use crate::probe::Probe;
use crate::target::Target;

/// Well below the timeout of the run: a later answer waited for a descriptor to close.
const PROMPTLY: Duration = Duration::from_secs(10);

fn outlived(target: &Target, marker: &Marker, way: &str) -> Answer {
    let began = Instant::now();
    let answer = target.run(&Probe::python("outlive").arg(marker.word()).arg(way));
    assert!(began.elapsed() < PROMPTLY, "answered after {:?}", began.elapsed());
    assert_eq!(answer.header("x-run-outcome"), Some("exited"), "{answer:?}");
    assert_eq!(observed(&answer)["started"], true, "the probe left no process");
    answer
}

pub fn holding_stdout(target: &Target) -> Result<(), Unexercised> {
    let marker = Marker::new();
    outlived(target, &marker, "holding");
    target.own()?;
    marker.assert_gone();
    Ok(())
}

pub fn writing_late(target: &Target) -> Result<(), Unexercised> {
    let marker = Marker::new();
    let answer = outlived(target, &marker, "closed");
    assert!(!answer.body.contains("late words"), "{answer:?}");
    // After every row, the next run looks for the files that this process would write.
    std::thread::sleep(Duration::from_millis(400));
    target.own()?;
    marker.assert_gone();
    Ok(())
}

pub fn deaf_to_signals(target: &Target) -> Result<(), Unexercised> {
    let marker = Marker::new();
    let answer = timed_out(target, &Probe::program("deaf").arg(marker.word()), 4);
    let expected = [
        ("block", "0"),
        ("ignored", "60"),
        ("no_death_signal", "0"),
        ("init", "refused|signalled"),
    ];
    assert_answers(&pairs_of(&answer), &expected);
    target.own()?;
    marker.assert_gone();
    Ok(())
}

pub fn stopped(target: &Target) -> Result<(), Unexercised> {
    let marker = Marker::new();
    let answer = timed_out(target, &Probe::program("stopped").arg(marker.word()), 4);
    let refused = "EPERM|ENOSYS";
    let expected =
        [("traceme", refused), ("stopped", "2"), ("seize", refused), ("interrupt", refused)];
    assert_answers(&pairs_of(&answer), &expected);
    target.own()?;
    marker.assert_gone();
    Ok(())
}
