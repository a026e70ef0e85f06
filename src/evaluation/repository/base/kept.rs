//! Bases that are mounted: a repository with what is installed for it, frozen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::evaluation::repository::error::RepositoryError;
use crate::evaluation::trees::FrozenFiles;

/// How long a base is used after it was made: what install found in indexes is older then.
pub const BASE_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// What an evaluation's sandboxes see: the repository and `/deps`.
#[derive(Debug, Clone)]
pub struct Base {
    /// The files. `/tmp` has an empty HOME, or what install left there.
    pub files: FrozenFiles,
    /// The full hash of its commit; empty for what is installed for an agent.
    pub base_commit: String,
    /// The digest of all that it was made of.
    pub digest: String,
    /// When it was made.
    pub made_at: SystemTime,
    /// The failure of install, if the task goes on in spite of it.
    pub install_failure: Option<RepositoryError>,
}

/// The bases of this process.
#[derive(Debug)]
pub struct BaseCache {
    bytes_max: u64,
    kept: Mutex<BTreeMap<String, KeptBase>>,
}

#[derive(Debug)]
struct KeptBase {
    base: Arc<Base>,
    used_at: SystemTime,
}

impl BaseCache {
    /// A cache of at most `bytes_max` bytes of files.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// The base with that digest, if it is young enough at `now`.
    pub fn find(&self, digest: &str, now: SystemTime) -> Option<Arc<Base>> {
        let mut kept = self.lock();
        kept.retain(|_, kept| is_young(kept.base.made_at, now));
        let found = kept.get_mut(digest)?;
        found.used_at = now;
        Some(Arc::clone(&found.base))
    }

    /// Keeps `base`, and drops those that were not used for the longest time if there is too much. What is
    /// in use stays until it is not.
    pub fn keep(&self, base: &Arc<Base>, now: SystemTime) {
        let mut kept = self.lock();
        let entry = KeptBase { base: Arc::clone(base), used_at: now };
        kept.insert(base.digest.clone(), entry);
        let bytes = |kept: &KeptBase| kept.base.files.used().bytes;
        let mut total = kept.values().fold(0_u64, |sum, kept| sum.saturating_add(bytes(kept)));
        while total > self.bytes_max {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.used_at);
            let Some(digest) = oldest.map(|(digest, _)| digest.clone()) else { return };
            total = total.saturating_sub(kept.remove(&digest).as_ref().map_or(0, bytes));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KeptBase>> {
        // Each change leaves the map consistent.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a base that was made at `made_at` may still be used at `now`.
pub fn is_young(made_at: SystemTime, now: SystemTime) -> bool {
    // A time in the future is that of another clock: the age is unknown.
    now.duration_since(made_at).is_ok_and(|age| age < BASE_LIFETIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_used_for_seven_days_after_it_was_made() {
        let made_at = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        let days = |days: u64| Duration::from_hours(24 * days);
        let second = Duration::from_secs(1);
        assert!(is_young(made_at, made_at) && is_young(made_at, made_at + days(7) - second));
        assert!(!is_young(made_at, made_at + days(7)) && !is_young(made_at, made_at - second));
    }
}
