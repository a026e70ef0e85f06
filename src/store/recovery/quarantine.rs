//! The quarantine: damaged records, kept for the operator.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

use crate::store::error::StoreError;
use crate::store::files::directory::StoreDir;
use crate::store::files::status_file::parse_time;
use crate::store::run_store::RunStore;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::remove_tree;

/// The most entries of the quarantine. The oldest are removed.
const ENTRIES_MAX: usize = 1000;
/// How long entries stay if jobs are kept for ever.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// How much of a name is kept, bytes: a time is appended to it.
const NAME_BYTES_MAX: usize = 200;
/// How many times are tried for a free name.
const ATTEMPTS_MAX: u64 = 1000;
/// The length of the appended time, with its dash.
const TIME_BYTES: usize = "-2026-02-28T23:59:59.007Z".len();

/// An entry of `runs` that was moved to the quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Its name in `runs`, escaped.
    pub name: String,
    /// Why it is not a record.
    pub reason: String,
}

impl RunStore {
    /// Moves the entry `name` of `runs` to the quarantine. Returns nothing if it is gone. If it
    /// cannot be moved it stays, and the reason says so.
    pub(crate) fn quarantine(&self, name: &OsStr, reason: String) -> Option<Quarantined> {
        let kept = self.writer_dirs().ok()?;
        let mut aside = Quarantined { name: name.as_bytes().escape_ascii().to_string(), reason };
        match move_to_quarantine(&self.opened().runs, &kept.quarantine, name, SystemTime::now()) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return None,
            Err(errno) => {
                aside.reason = format!("{}; it stays where it is: {errno}", aside.reason);
            }
        }
        log::warn!(entry = aside.name.as_str(), reason = aside.reason.as_str(); "job record quarantined");
        Some(aside)
    }
}

fn move_to_quarantine(
    runs: &StoreDir,
    quarantine: &StoreDir,
    name: &OsStr,
    now: SystemTime,
) -> Result<(), Errno> {
    for later in 0..ATTEMPTS_MAX {
        let kept = name.as_bytes().get(..NAME_BYTES_MAX).unwrap_or(name.as_bytes());
        let time = rfc3339(now + Duration::from_millis(later));
        let new_name = OsString::from_vec([kept, b"-", time.as_bytes()].concat());
        match runs.move_to(name, quarantine, new_name) {
            Err(Errno::EEXIST) => {}
            moved => return moved,
        }
    }
    Err(Errno::EEXIST)
}

/// When an entry was moved here. Entries with other names count as the oldest.
fn quarantined_at(name: &OsStr) -> SystemTime {
    let bytes = name.as_bytes();
    let time = bytes.len().checked_sub(TIME_BYTES).and_then(|at| bytes.get(at + 1..));
    let time = time.and_then(|time| std::str::from_utf8(time).ok());
    time.and_then(parse_time).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Removes old entries, and the oldest above the maximum.
pub(crate) fn prune(
    quarantine: &StoreDir,
    retention: Option<Duration>,
    now: SystemTime,
) -> Result<(), StoreError> {
    let age_max = retention.unwrap_or(AGE_MAX);
    let mut entries: Vec<(SystemTime, OsString)> =
        quarantine.names()?.into_iter().map(|name| (quarantined_at(&name), name)).collect();
    entries.sort_unstable();
    let too_many = entries.len().saturating_sub(ENTRIES_MAX);
    for (index, (since, name)) in entries.into_iter().enumerate() {
        let is_old = now.duration_since(since).is_ok_and(|age| age >= age_max);
        if index < too_many || is_old {
            match remove_tree(quarantine.fd(), &name) {
                Ok(removed) if removed.left == 0 => {}
                outcome => log::warn!(outcome:? = outcome; "quarantined entry not removed"),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_quarantine_is_bounded_by_age_and_by_number() {
        let place = tempfile::tempdir().unwrap();
        let quarantine = StoreDir::open(place.path()).unwrap();
        let now = SystemTime::now();
        let make = |name: &str, age_s| {
            let time = rfc3339(now - Duration::from_secs(age_s));
            fs::create_dir_all(place.path().join(format!("{name}-{time}/artifacts"))).unwrap();
        };
        make("old", 90);
        make("new", 10);
        fs::write(place.path().join("foreign"), "").unwrap();
        prune(&quarantine, Some(Duration::from_secs(60)), now).unwrap();
        let names = quarantine.names().unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].as_bytes().starts_with(b"new-"));
        for index in 0..ENTRIES_MAX {
            make(&format!("many{index}"), 5);
        }
        prune(&quarantine, None, now).unwrap();
        let names = quarantine.names().unwrap();
        assert_eq!(names.len(), ENTRIES_MAX);
        assert!(!names.iter().any(|name| name.as_bytes().starts_with(b"new-")), "the oldest goes");
    }

    #[test]
    fn equal_names_and_names_of_any_bytes_are_all_kept() {
        let place = tempfile::tempdir().unwrap();
        let root = StoreDir::open(place.path()).unwrap();
        let (runs, quarantine) =
            (root.own_child("runs").unwrap(), root.own_child("quarantine").unwrap());
        let long = OsString::from_vec(vec![0xFF; 255]);
        for _ in 0..3 {
            fs::create_dir(runs.path().join(&long)).unwrap();
            move_to_quarantine(&runs, &quarantine, &long, SystemTime::UNIX_EPOCH).unwrap();
        }
        assert_eq!(quarantine.names().unwrap().len(), 3);
        assert_eq!(
            move_to_quarantine(&runs, &quarantine, &long, SystemTime::now()),
            Err(Errno::ENOENT)
        );
    }
}
