//! Jobs that go, by age and by what they take.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use super::index::Ended;
use super::store::{Keeper, RunStore};
use crate::store::files::directory::Directory;
use crate::store::files::inspect::read_status;
use crate::store::files::owner::is_owner_name;
use crate::store::files::status_file::parse_time;
use crate::store::recovery::quarantine::prune;
use cofferdam_core::job::JobId;
use cofferdam_tree::remove_tree;

/// How the name of a directory begins that is being filled.
pub(super) const NEW: &str = ".new-";
/// How the name of a directory begins that is being removed.
pub(super) const GONE: &str = ".gone-";

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Jobs.
    pub jobs: u64,
    /// What their records took on the disk, bytes.
    pub bytes: u64,
}

/// A fresh name for a directory on its way in or out, of that owner.
pub(super) fn passing_name(prefix: &str, owner: &str) -> String {
    format!("{prefix}{owner}-{}", uuid::Uuid::new_v4().simple())
}

/// Whose directory on its way in or out it is, if it is one. One without an owner's name is nobody's.
pub(super) fn owner_of_passing(name: &OsStr) -> Option<String> {
    let name = name.to_string_lossy();
    let rest = name.strip_prefix(NEW).or_else(|| name.strip_prefix(GONE))?;
    let owner = rest.split_once('-').map_or("", |(owner, _)| owner);
    Some(if is_owner_name(owner) { owner.to_owned() } else { String::new() })
}

/// Removes such a directory; what stays is removed when the store is next opened.
pub(super) fn remove_passing(runs: &Directory, name: &str) {
    match remove_tree(runs.fd(), OsStr::new(name)) {
        Ok(removed) if removed.left == 0 => {}
        outcome => log::warn!(outcome:? = outcome; "directory of a job not removed"),
    }
}

impl RunStore {
    /// Removes jobs that have been over for longer than the retention, then, the longest over
    /// first, as many as are needed for the rest to take no more than `bytes_max`; and of the
    /// quarantine what is too old or too many. A job that is not over stays. A store that was
    /// opened for looking alone removes nothing.
    pub fn remove_expired(&self, now: SystemTime) -> Removed {
        let Ok(keeper) = self.keeper() else { return Removed::default() };
        self.look_around();
        self.settle_loose();
        let removed = self.remove_ended(keeper, |keeper, (at, _)| is_due(keeper, at, now));
        let pruned =
            self.kept().and_then(|kept| prune(&kept.quarantine, keeper.settings.retention, now));
        if let Err(error) = pruned {
            log::warn!(error:% = error; "quarantine not looked through");
        }
        removed
    }

    /// Removes the jobs that have been over for longest, as many as are needed for the rest to
    /// take no more than `bytes_max`; never the last, whose result somebody may be waiting for.
    pub fn remove_beyond_max(&self) -> Removed {
        let Ok(keeper) = self.keeper() else { return Removed::default() };
        self.remove_ended(keeper, |keeper, (_, id)| {
            is_beyond_max(keeper) && keeper.index().last_ended().as_ref() != Some(id)
        })
    }

    /// The same with the records that other processes have made since the last look.
    pub fn look_and_remove_beyond_max(&self) -> Removed {
        self.look_around();
        self.remove_beyond_max()
    }

    /// Removes jobs that are over, the longest first, until one is not due.
    fn remove_ended(&self, keeper: &Keeper, is_due: impl Fn(&Keeper, &Ended) -> bool) -> Removed {
        let mut removed = Removed::default();
        let mut ended = keeper.index().next_ended(None);
        while let Some(oldest) = ended.filter(|oldest| is_due(keeper, oldest)) {
            let (finished_at, id) = &oldest;
            if let Some(bytes) = self.remove_job(keeper, id, finished_at) {
                removed.jobs += 1;
                removed.bytes = removed.bytes.saturating_add(bytes);
            }
            ended = keeper.index().next_ended(Some(&oldest));
        }
        removed
    }

    fn look_around(&self) {
        if let Err(error) = self.refresh() {
            log::warn!(error:% = error; "store not looked through");
        }
    }

    /// Looks again at every job of which only its files tell.
    pub(super) fn settle_loose(&self) {
        let Ok(keeper) = self.keeper() else { return };
        let loose = keeper.index().loose();
        if let Err(error) = self.settle(&loose) {
            log::warn!(error:% = error; "jobs of others not looked at");
        }
    }

    /// Removes a job that is over since `finished_at`; how much it took. Another process may have
    /// removed it before, and taken in another of its name.
    fn remove_job(&self, keeper: &Keeper, id: &JobId, finished_at: &str) -> Option<u64> {
        let opened = self.opened();
        let runs = &opened.runs;
        let status = self.job(id).ok()?.map(|directory| read_status(&directory, id));
        match status {
            Some(Ok(status)) if status.line.finished_at.as_deref() != Some(finished_at) => {
                keeper.index().loosen(id);
                return None;
            }
            None => {
                keeper.index().remove(id);
                return None;
            }
            Some(_) => {}
        }
        let gone = passing_name(GONE, self.kept().ok()?.owner.name());
        match runs.move_to(id.as_str(), runs, &gone) {
            Ok(()) => remove_passing(runs, &gone),
            Err(errno) => {
                log::warn!(job = id.as_str(), errno:% = errno; "expired job not removed");
                return None;
            }
        }
        keeper.index().remove(id).map(|entry| entry.bytes)
    }
}

/// Whether the job that has been over for longest, since `finished_at`, is to go.
fn is_due(keeper: &Keeper, finished_at: &str, now: SystemTime) -> bool {
    let settings = &keeper.settings;
    let age = || -> Option<Duration> { now.duration_since(parse_time(finished_at)?).ok() };
    let is_old = settings.retention.is_some_and(|max| age().is_some_and(|age| age >= max));
    is_old || is_beyond_max(keeper)
}

fn is_beyond_max(keeper: &Keeper) -> bool {
    keeper.settings.bytes_max.is_some_and(|max| keeper.index().bytes() > max)
}
