//! What other processes have made in the store, or removed from it, since the last look.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::error::StoreError;
use super::store::{RunStore, locked};
use cofferdam_core::job::JobId;

/// A directory that was changed so recently may change again without a new time.
const TIME_STEP: Duration = Duration::from_secs(1);

/// The state of `runs` that the index knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    changed_at: SystemTime,
    looked_at: SystemTime,
}

impl Seen {
    /// Whether `runs`, last changed at `changed_at`, holds what it held then.
    fn is_current(self, changed_at: SystemTime) -> bool {
        let age = self.looked_at.duration_since(changed_at);
        self.changed_at == changed_at && age.is_ok_and(|age| age > TIME_STEP)
    }
}

impl RunStore {
    /// Takes into the index what it lacks, and out of it what is not on the disk any more. Costs
    /// a look at two directories where nothing has changed.
    pub(super) fn refresh(&self) -> Result<(), StoreError> {
        let keeper = self.keeper()?;
        self.find_again()?;
        let mut seen = locked(&keeper.seen);
        let opened = self.opened();
        let changed_at = opened.runs.changed_at()?;
        if seen.is_some_and(|seen| seen.is_current(changed_at)) {
            return Ok(());
        }
        let looked_at = SystemTime::now();
        let names = opened.runs.names()?;
        let names = names.iter().filter_map(|name| JobId::parse(name.to_str()?).ok());
        let there: HashSet<JobId> = names.collect();
        let (new, gone) = keeper.index().differences(&there);
        for id in gone {
            // One that was made after the names were read is still there.
            if opened.runs.entry(id.as_str())?.is_none() {
                keeper.index().remove_unless_ours(&id);
            }
        }
        self.settle(&new)?;
        *seen = Some(Seen { changed_at, looked_at });
        Ok(())
    }
}
