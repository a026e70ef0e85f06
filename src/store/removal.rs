//! Jobs that go, by age and by what they take.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use super::index::EndedKey;
use super::store::{RunStore, StoreWriter};
use crate::store::files::directory::StoreDir;
use crate::store::files::inspect::read_status;
use crate::store::files::owner::is_owner_name;
use crate::store::files::status_file::parse_time;
use crate::store::recovery::quarantine::prune;
use cofferdam_core::job::JobId;
use cofferdam_tree::remove_tree;

/// How the name of a directory begins that is being filled.
pub(super) const TEMP: &str = ".new-";
/// How the name of a directory begins that is being removed.
pub(super) const TOMBSTONE: &str = ".gone-";

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedJobs {
    /// Jobs.
    pub jobs: u64,
    /// What their records took on the disk, bytes.
    pub bytes: u64,
}

/// A fresh name for a directory on its way in or out, of that owner.
pub(super) fn temp_name(prefix: &str, owner: &str) -> String {
    format!("{prefix}{owner}-{}", uuid::Uuid::new_v4().simple())
}

/// Whose directory on its way in or out it is, if it is one. One without an owner's name is nobody's.
pub(super) fn owner_of_temp(name: &OsStr) -> Option<String> {
    let name = name.to_string_lossy();
    let rest = name.strip_prefix(TEMP).or_else(|| name.strip_prefix(TOMBSTONE))?;
    let owner = rest.split_once('-').map_or("", |(owner, _)| owner);
    Some(if is_owner_name(owner) { owner.to_owned() } else { String::new() })
}

/// Removes such a directory; what stays is removed when the store is next opened.
pub(super) fn remove_temp(runs: &StoreDir, name: &str) {
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
    pub fn remove_expired(&self, now: SystemTime) -> RemovedJobs {
        let Ok(writer) = self.writer() else { return RemovedJobs::default() };
        self.refresh_or_log();
        self.settle_unowned();
        let removed = self.remove_ended(writer, |writer, (at, _)| is_due(writer, at, now));
        let pruned =
            self.writer_dirs().and_then(|kept| prune(&kept.quarantine, writer.settings.retention, now));
        if let Err(error) = pruned {
            log::warn!(error:% = error; "quarantine not looked through");
        }
        removed
    }

    /// Removes the jobs that have been over for longest, as many as are needed for the rest to
    /// take no more than `bytes_max`; never the last, whose result somebody may be waiting for.
    pub fn remove_beyond_max(&self) -> RemovedJobs {
        let Ok(writer) = self.writer() else { return RemovedJobs::default() };
        self.remove_ended(writer, |writer, (_, id)| {
            is_beyond_max(writer) && writer.index().last_ended().as_ref() != Some(id)
        })
    }

    /// The same with the records that other processes have made since the last look.
    pub fn look_and_remove_beyond_max(&self) -> RemovedJobs {
        self.refresh_or_log();
        self.remove_beyond_max()
    }

    /// Removes jobs that are over, the longest first, until one is not due.
    fn remove_ended(
        &self,
        writer: &StoreWriter,
        is_due: impl Fn(&StoreWriter, &EndedKey) -> bool,
    ) -> RemovedJobs {
        let mut removed = RemovedJobs::default();
        let mut ended = writer.index().next_ended(None);
        while let Some(oldest) = ended.filter(|oldest| is_due(writer, oldest)) {
            let (finished_at, id) = &oldest;
            if let Some(bytes) = self.remove_job(writer, id, finished_at) {
                removed.jobs += 1;
                removed.bytes = removed.bytes.saturating_add(bytes);
            }
            ended = writer.index().next_ended(Some(&oldest));
        }
        removed
    }

    fn refresh_or_log(&self) {
        if let Err(error) = self.refresh() {
            log::warn!(error:% = error; "store not looked through");
        }
    }

    /// Looks again at every job of which only its files tell.
    pub(super) fn settle_unowned(&self) {
        let Ok(writer) = self.writer() else { return };
        let unowned = writer.index().unowned();
        if let Err(error) = self.settle(&unowned) {
            log::warn!(error:% = error; "jobs of others not looked at");
        }
    }

    /// Removes a job that is over since `finished_at`; how much it took. Another process may have
    /// removed it before, and taken in another of its name.
    fn remove_job(&self, writer: &StoreWriter, id: &JobId, finished_at: &str) -> Option<u64> {
        let opened = self.opened();
        let runs = &opened.runs;
        let status = self.job(id).ok()?.map(|directory| read_status(&directory, id));
        match status {
            Some(Ok(status)) if status.line.finished_at.as_deref() != Some(finished_at) => {
                writer.index().release(id);
                return None;
            }
            None => {
                writer.index().remove(id);
                return None;
            }
            Some(_) => {}
        }
        let gone = temp_name(TOMBSTONE, self.writer_dirs().ok()?.owner.name());
        match runs.move_to(id.as_str(), runs, &gone) {
            Ok(()) => remove_temp(runs, &gone),
            Err(errno) => {
                log::warn!(job = id.as_str(), errno:% = errno; "expired job not removed");
                return None;
            }
        }
        writer.index().remove(id).map(|entry| entry.bytes)
    }
}

/// Whether the job that has been over for longest, since `finished_at`, is to go.
fn is_due(writer: &StoreWriter, finished_at: &str, now: SystemTime) -> bool {
    let settings = &writer.settings;
    let age = || -> Option<Duration> { now.duration_since(parse_time(finished_at)?).ok() };
    let is_old = settings.retention.is_some_and(|max| age().is_some_and(|age| age >= max));
    is_old || is_beyond_max(writer)
}

fn is_beyond_max(writer: &StoreWriter) -> bool {
    writer.settings.bytes_max.is_some_and(|max| writer.index().bytes() > max)
}
