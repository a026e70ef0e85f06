//! File locks: the kernel limits them for no user and scans them at every close.

use std::time::Duration;

use super::answers::{Expected, OK, answers_in, answers_told, together};
use crate::Unexercised;
use crate::probe::Probe;
use crate::punctual::assert_is_answered_in_time;
use crate::target::Target;

/// A file that every root file system has and every run can read.
const SHARED: &str = "/etc/passwd";
/// Another such file, on which no locks are taken.
const CONTROL: &str = "/etc/group";
/// The limit does not count file descriptions in socket messages and every second mapping.
const LOCKS_MAX: u64 = 2 * 1024;
/// An unbounded number of locks makes a close about a hundred times as slow.
const SLOWER_MAX: u64 = 20;

fn pile(way: &str, millis: u32) -> Probe {
    Probe::c("lock_pile").arg(way).arg(SHARED).arg(millis.to_string())
}

pub fn piles_end(target: &Target) -> Result<(), Unexercised> {
    for way in ["records", "mapped", "descriptors"] {
        let told = answers_told(&target.observe(&pile(way, 0)));
        let held = &told[way];
        let (count, refusal) = held.split_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        assert_eq!(refusal, "ENOLCK", "{way}: {held}");
        assert!((100..=LOCKS_MAX).contains(&count), "{way}: {held}");
    }
    Expected::default()
        .all(&["description", "description-wait", "description-ask", "own-table"], &["EINVAL"])
        .hold(answers_told(&target.observe(&pile("hidden", 0))));
    Ok(())
}

pub fn deaths_are_quick(target: &Target) -> Result<(), Unexercised> {
    let probe = Probe::c("lock_pile").arg("die").arg(SHARED);
    assert_is_answered_in_time(target, &probe, Duration::from_secs(2));
    Ok(())
}

pub fn neighbours_close(target: &Target) -> Result<(), Unexercised> {
    // Until the locks are taken.
    let beside = Probe::python("close_times").arg(2).arg(SHARED).arg(CONTROL);
    let (_, seen) = together(target, &pile("records", 6000), &beside);
    let [shared, control] = [SHARED, CONTROL].map(|file| seen["nanos"][file].as_u64().unwrap());
    assert!(shared <= control * SLOWER_MAX, "{shared} ns to close, {control} ns without locks");
    Ok(())
}

pub fn programs_lock(target: &Target) -> Result<(), Unexercised> {
    const USES: &[&str] = &[
        "database",
        "other-connection",
        "record-exclusion",
        "flock-exclusion",
        "record-turns",
        "flock-turns",
    ];
    let seen = target.observe(&Probe::python("lock_use"));
    Expected::default().all(USES, OK).hold(answers_in(&seen));
    Ok(())
}
