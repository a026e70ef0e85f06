//! Fingerprints of trees, to detect changes.

use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use nix::sys::stat::FileStat;

/// Two changes within one kernel tick can have the same time. Kernels have at least 100 ticks a
/// second.
const TICK_MAX: Duration = Duration::from_millis(20);

/// A value that differs after every change of a tree: of a name, size, owner or mode, or of contents,
/// by the change time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fingerprint {
    digest: u64,
    /// The time of the last change, since the epoch.
    changed_at: Duration,
}

impl Fingerprint {
    /// Whether every change from `now` on gives another fingerprint.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.changed_at + TICK_MAX < now
    }
}

/// Computes the fingerprint of a tree during a walk, whose order is always the same.
#[derive(Debug, Default)]
pub(crate) struct FingerprintHasher {
    hasher: DefaultHasher,
    changed_at: Duration,
}

impl FingerprintHasher {
    /// Adds an entry of the current directory.
    pub(crate) fn entry(&mut self, name: &CStr, stat: &FileStat) {
        name.hash(&mut self.hasher);
        let identity = (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid);
        (identity, stat.st_size, stat.st_ctime, stat.st_ctime_nsec).hash(&mut self.hasher);
        let seconds = u64::try_from(stat.st_ctime).unwrap_or(0);
        let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or(0);
        self.changed_at = self.changed_at.max(Duration::new(seconds, nanoseconds));
    }

    /// Adds that the walk left a directory.
    pub(crate) fn leave(&mut self) {
        // No entry starts like this: names are hashed with their length first.
        u64::MAX.hash(&mut self.hasher);
    }

    pub(crate) fn finish(self) -> Fingerprint {
        Fingerprint { digest: self.hasher.finish(), changed_at: self.changed_at }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::Template;

    fn fingerprint(path: &Path) -> Fingerprint {
        Template::scan(path).unwrap().fingerprint
    }

    #[test]
    fn every_change_of_a_tree_gives_another_fingerprint() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("check")).unwrap();
        fs::write(path("Makefile"), "test:").unwrap();
        fs::write(path("check/data"), "1").unwrap();
        type Change<'a> = (&'a str, Box<dyn Fn() -> std::io::Result<()> + 'a>);
        let changes: [Change<'_>; 6] = [
            ("a file as long as before", Box::new(|| fs::write(path("check/data"), "2"))),
            ("a file more", Box::new(|| fs::write(path("more"), ""))),
            ("another name", Box::new(|| fs::rename(path("more"), path("other")))),
            ("another place", Box::new(|| fs::rename(path("other"), path("check/other")))),
            (
                "another mode",
                Box::new(|| fs::set_permissions(path("Makefile"), Permissions::from_mode(0o600))),
            ),
            ("a file less", Box::new(|| fs::remove_file(path("check/other")))),
        ];
        let mut last = fingerprint(place.path());
        assert_eq!(fingerprint(place.path()), last);
        for (what, change) in changes {
            std::thread::sleep(TICK_MAX);
            change().unwrap();
            let next = fingerprint(place.path());
            assert_ne!(next, last, "{what}");
            last = next;
        }
    }

    #[test]
    fn a_tree_that_has_just_changed_is_not_settled() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("new"), "").unwrap();
        let fingerprint = fingerprint(place.path());
        let changed = SystemTime::UNIX_EPOCH + fingerprint.changed_at;
        assert!(!fingerprint.is_settled(changed));
        assert!(!fingerprint.is_settled(changed + TICK_MAX));
        assert!(fingerprint.is_settled(changed + 2 * TICK_MAX));
        assert!(!fingerprint.is_settled(SystemTime::UNIX_EPOCH), "a clock that was set back");
    }
}
