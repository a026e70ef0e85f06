//! Removes ended jobs, by age and by size.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use super::index::EndedKey;
use super::run_store::{RunStore, StoreWriter};
use crate::store::files::directory::StoreDir;
use crate::store::files::inspect::read_status;
use crate::store::files::owner::is_owner_name;
use crate::store::files::status_file::parse_time;
use crate::store::recovery::quarantine::prune;
use cofferdam_core::job::JobId;
use cofferdam_tree::remove_tree;

/// The prefix of a directory that is being filled.
pub(super) const TEMP: &str = ".new-";
/// The prefix of a directory that is being removed.
pub(super) const TOMBSTONE: &str = ".gone-";

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedJobs {
    /// How many jobs.
    pub jobs: u64,
    /// The size of their records on the disk, bytes.
    pub bytes: u64,
}

/// A new temporary name for a directory of that owner.
pub(super) fn temp_name(prefix: &str, owner: &str) -> String {
    format!("{prefix}{owner}-{}", uuid::Uuid::new_v4().simple())
}

/// The owner in a temporary name; empty if it has none. Nothing for other names.
pub(super) fn owner_of_temp(name: &OsStr) -> Option<String> {
    let name = name.to_string_lossy();
    let rest = name.strip_prefix(TEMP).or_else(|| name.strip_prefix(TOMBSTONE))?;
    let owner = rest.split_once('-').map_or("", |(owner, _)| owner);
    Some(if is_owner_name(owner) { owner.to_owned() } else { String::new() })
}

/// Removes a temporary directory. If that fails, the next opening of the store removes it.
pub(super) fn remove_temp(runs: &StoreDir, name: &str) {
    match remove_tree(runs.fd(), OsStr::new(name)) {
        Ok(removed) if removed.left == 0 => {}
        outcome => log::warn!(outcome:? = outcome; "directory of a job not removed"),
    }
}

impl RunStore {
    /// Removes jobs that ended before the retention, then the oldest until the rest fit in
    /// `bytes_max`, and old entries of the quarantine. Jobs that have not ended stay. A store that is
    /// open for reading only removes nothing.
    pub fn remove_expired(&self, now: SystemTime) -> RemovedJobs {
        let Ok(writer) = self.writer() else { return RemovedJobs::default() };
        self.refresh_or_log();
        self.settle_unowned();
        let removed = self.remove_ended(writer, |writer, (at, _)| is_due(writer, at, now));
        let pruned = self
            .writer_dirs()
            .and_then(|kept| prune(&kept.quarantine, writer.settings.retention, now));
        if let Err(error) = pruned {
            log::warn!(error:% = error; "quarantine not pruned");
        }
        removed
    }

    /// Removes the oldest ended jobs until the rest fit in `bytes_max`. Keeps the last one, whose
    /// result a client may be waiting for.
    pub fn remove_beyond_max(&self) -> RemovedJobs {
        let Ok(writer) = self.writer() else { return RemovedJobs::default() };
        self.remove_ended(writer, |writer, (_, id)| {
            is_beyond_max(writer) && writer.index().last_ended().as_ref() != Some(id)
        })
    }

    /// The same, including new records of other processes.
    pub fn refresh_and_remove_beyond_max(&self) -> RemovedJobs {
        self.refresh_or_log();
        self.remove_beyond_max()
    }

    /// Removes ended jobs, the oldest first, until one is not due.
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
            log::warn!(error:% = error; "store not refreshed");
        }
    }

    /// Checks every job that this opening does not own.
    pub(super) fn settle_unowned(&self) {
        let Ok(writer) = self.writer() else { return };
        let unowned = writer.index().unowned();
        if let Err(error) = self.settle(&unowned) {
            log::warn!(error:% = error; "jobs of other processes not checked");
        }
    }

    /// Removes a job that ended at `finished_at`, and returns its size. Another process may have
    /// removed it and created another job of that id.
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

/// Whether the oldest ended job, which ended at `finished_at`, must be removed.
fn is_due(writer: &StoreWriter, finished_at: &str, now: SystemTime) -> bool {
    let settings = &writer.settings;
    let age = || -> Option<Duration> { now.duration_since(parse_time(finished_at)?).ok() };
    let is_old = settings.retention.is_some_and(|max| age().is_some_and(|age| age >= max));
    is_old || is_beyond_max(writer)
}

fn is_beyond_max(writer: &StoreWriter) -> bool {
    writer.settings.bytes_max.is_some_and(|max| writer.index().bytes() > max)
}
