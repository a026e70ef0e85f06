//! Recovers a store: when it is opened, and when the owner of a job has died.

mod interrupted;
pub(super) mod quarantine;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Instant, SystemTime};

use super::error::{ReadFault, StoreError};
use super::index::{Hold, IndexEntry, RunsState};
use super::record::json_file;
use super::removal::owner_of_temp;
use super::run_store::{RunStore, StoreSettings, StoreWriter, WriterDirs, locked};
use crate::store::files::directory::StoreDir;
use crate::store::files::inspect::{
    ARTIFACTS, CANCEL, RESULT, RecordState, SNAPSHOT, STATUS, inspect, record_bytes,
};
use crate::store::files::owner::Claims;
use crate::store::files::status_file::StatusFile;
use crate::store::recovery::interrupted::interrupted;
use crate::store::recovery::quarantine::{Quarantined, prune};
use cofferdam_core::job::{JobId, RunJobRequest};
use cofferdam_tree::remove_tree;

/// How many bytes of requests and results are read at the opening. The files of further ended jobs
/// are read on request.
const READ_BYTES_MAX: u64 = 512 << 20;

/// What recovery found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Jobs whose process had died, finished as failed.
    pub interrupted: Vec<JobId>,
    /// Damaged records, moved to the quarantine.
    pub quarantined: Vec<Quarantined>,
    /// How many jobs the store holds now.
    pub jobs: u64,
}

/// What recovery did with one entry of `runs`.
enum RecoveryOutcome {
    /// The entry is a job, and in the index.
    Indexed,
    /// The same, after its result was written as interrupted.
    Interrupted,
    /// It is a job of this opening that has not ended. Its record alone writes to it, and has added
    /// it to the index or is about to.
    Live,
    /// It is not a job.
    Corrupt(String),
    /// It no longer exists.
    Gone,
}

/// One pass over the jobs.
struct RecoveryPass<'a> {
    writer: &'a StoreWriter,
    kept: &'a WriterDirs,
    claims: Claims<'a>,
    budget_bytes: u64,
    now: SystemTime,
}

impl RunStore {
    /// Opens the store in `directory` for its only service, creates it if missing, and recovers it:
    /// finishes jobs of dead owners as interrupted, moves damaged records to the quarantine, and
    /// removes temporary directories.
    ///
    /// # Errors
    /// [`StoreError::Owned`] if another service owns it; or the path is not a directory, belongs to
    /// another user, or cannot be written.
    pub fn open(
        directory: &Path,
        settings: StoreSettings,
    ) -> Result<(Self, Recovered), StoreError> {
        let store = Self::open_writer(directory, StoreWriter::new(settings, true))?;
        let recovered = store.recover()?;
        Ok((store, recovered))
    }

    pub(super) fn recover(&self) -> Result<Recovered, StoreError> {
        let writer = self.writer()?;
        let (opened, kept) = (self.opened(), self.writer_dirs()?);
        let mut pass = RecoveryPass::new(writer, &kept);
        let mut recovered = Recovered::default();
        for name in opened.runs.names()? {
            if let Some(owner) = owner_of_temp(&name) {
                self.sweep(&mut pass, &name, &owner)?;
                continue;
            }
            let id = name.to_str().and_then(|name| JobId::parse(name).ok());
            let outcome = match &id {
                Some(id) => pass.settle(&opened.runs, id)?,
                None => RecoveryOutcome::Corrupt("not the name of a job".to_owned()),
            };
            match outcome {
                RecoveryOutcome::Interrupted => recovered.interrupted.extend(id),
                RecoveryOutcome::Corrupt(reason) => {
                    recovered.quarantined.extend(self.quarantine(&name, reason));
                }
                RecoveryOutcome::Indexed | RecoveryOutcome::Live | RecoveryOutcome::Gone => {}
            }
        }
        pass.claims.sweep()?;
        prune(&kept.quarantine, writer.settings.retention, pass.now)?;
        recovered.jobs = u64::try_from(writer.index().len()).unwrap_or(u64::MAX);
        Ok(recovered)
    }

    /// Checks jobs of other owners, indexed or not, and finishes those of dead owners.
    pub(super) fn settle(&self, ids: &[JobId]) -> Result<(), StoreError> {
        let writer = self.writer()?;
        if ids.is_empty() {
            return Ok(());
        }
        let mut settled_at = locked(&writer.settling);
        let (opened, kept) = (self.opened(), self.writer_dirs()?);
        let mut pass = RecoveryPass::new(writer, &kept);
        *settled_at = Some(Instant::now());
        for id in ids {
            // Another thread may have settled it in the meantime.
            let hold = writer.index().get(id).map(|entry| entry.hold);
            if matches!(hold, Some(Hold::Ours | Hold::Over)) {
                continue;
            }
            match pass.settle(&opened.runs, id)? {
                RecoveryOutcome::Indexed | RecoveryOutcome::Interrupted | RecoveryOutcome::Live => {
                }
                RecoveryOutcome::Gone => writer.index().remove_unless_ours(id),
                // A process may be creating the record right now: the next opening decides.
                RecoveryOutcome::Corrupt(_) if hold.is_none() => {}
                RecoveryOutcome::Corrupt(reason) => {
                    self.quarantine(OsStr::new(id.as_str()), reason);
                    writer.index().remove(id);
                }
            }
        }
        Ok(())
    }

    /// Adds new jobs on the disk to the index, and removes jobs that are gone. Costs two `stat`
    /// calls if nothing has changed.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        let writer = self.writer()?;
        self.reopen_if_moved()?;
        let mut seen = locked(&writer.seen);
        let opened = self.opened();
        let changed_at = opened.runs.changed_at()?;
        if seen.is_some_and(|seen| seen.is_current(changed_at)) {
            return Ok(());
        }
        let looked_at = SystemTime::now();
        let names = opened.runs.names()?;
        let names = names.iter().filter_map(|name| JobId::parse(name.to_str()?).ok());
        let there: HashSet<JobId> = names.collect();
        let (new, gone) = writer.index().differences(&there);
        for id in gone {
            // A job that was created after the names were read is not gone.
            if opened.runs.entry(id.as_str())?.is_none() {
                writer.index().remove_unless_ours(&id);
            }
        }
        self.settle(&new)?;
        *seen = Some(RunsState { changed_at, looked_at });
        Ok(())
    }

    /// Removes a temporary directory of a dead owner.
    fn sweep(
        &self,
        pass: &mut RecoveryPass<'_>,
        name: &OsStr,
        owner: &str,
    ) -> Result<(), StoreError> {
        if pass.claims.claim(owner)? {
            match remove_tree(self.opened().runs.fd(), name) {
                Ok(removed) if removed.left == 0 => {}
                outcome => log::warn!(outcome:? = outcome; "leftover of a job not removed"),
            }
        }
        Ok(())
    }
}

impl<'a> RecoveryPass<'a> {
    fn new(writer: &'a StoreWriter, kept: &'a WriterDirs) -> Self {
        let claims = Claims::new(kept.owner.owners());
        Self { writer, kept, claims, budget_bytes: READ_BYTES_MAX, now: SystemTime::now() }
    }

    /// Adds one job to the index, and finishes it if its owner is dead.
    fn settle(&mut self, runs: &StoreDir, id: &JobId) -> Result<RecoveryOutcome, StoreError> {
        let directory = match runs.child(id.as_str()) {
            Ok(directory) => directory,
            Err(errno) => {
                return match ReadFault::of("open", runs.path_of(id.as_str()), errno) {
                    ReadFault::Absent => Ok(RecoveryOutcome::Gone),
                    ReadFault::Corrupt(reason) => Ok(RecoveryOutcome::Corrupt(reason)),
                    ReadFault::System(error) => Err(error),
                };
            }
        };
        match self.settle_record(&directory, id) {
            Ok(outcome) => Ok(outcome),
            Err(ReadFault::Absent) => Ok(RecoveryOutcome::Gone),
            Err(ReadFault::Corrupt(reason)) => Ok(RecoveryOutcome::Corrupt(reason)),
            Err(ReadFault::System(error)) => Err(error),
        }
    }

    fn settle_record(
        &mut self,
        directory: &StoreDir,
        id: &JobId,
    ) -> Result<RecoveryOutcome, ReadFault> {
        let mut found = inspect(directory, id, &mut self.budget_bytes)?;
        if let RecordState::Live(status, _) | RecordState::StaleStatus(status) = &found {
            if status.owner == self.kept.owner.name() {
                // Looked up after the file was read: a job that was created after the caller looked is
                // not in the index yet, or has just been added.
                let hold = self.writer.index().get(id).map(|entry| entry.hold);
                if matches!(hold, None | Some(Hold::Ours)) {
                    return Ok(RecoveryOutcome::Live);
                }
            } else if !self.claims.claim(&status.owner).map_err(ReadFault::System)? {
                self.update_index(status, Hold::Unowned);
                return Ok(RecoveryOutcome::Indexed);
            }
            // Its owner may have finished it before it died or dropped the record.
            found = inspect(directory, id, &mut self.budget_bytes)?;
        }
        match found {
            RecordState::Over(status) => {
                self.update_index(&status, Hold::Over);
                Ok(RecoveryOutcome::Indexed)
            }
            RecordState::StaleStatus(status) => {
                let repaired = json_file(directory, STATUS, &status)
                    .and_then(|contents| directory.replace(STATUS, &contents));
                if let Err(error) = repaired {
                    log::warn!(error:% = error; "job status not repaired");
                }
                self.update_index(&status, Hold::Over);
                Ok(RecoveryOutcome::Indexed)
            }
            RecordState::Live(status, request) => self.interrupt(directory, &status, &request),
        }
    }

    fn interrupt(
        &self,
        directory: &StoreDir,
        status: &StatusFile,
        request: &RunJobRequest,
    ) -> Result<RecoveryOutcome, ReadFault> {
        let result = interrupted(directory, request, status, self.now)?;
        // No result lists these artifacts.
        let removed = remove_tree(directory.fd(), OsStr::new(ARTIFACTS));
        if !removed.as_ref().is_ok_and(|removed| removed.left == 0) {
            log::warn!(outcome:? = removed; "artifacts of an interrupted job not removed");
        }
        let finished = || -> Result<StatusFile, StoreError> {
            directory.unlink_unfinished(SNAPSHOT)?;
            directory.unlink(CANCEL)?;
            directory.replace(RESULT, &json_file(directory, RESULT, &result)?)?;
            let bytes = record_bytes(directory, &result);
            let over = StatusFile::over(&result, Some(status), bytes);
            directory.replace(STATUS, &json_file(directory, STATUS, &over)?)?;
            directory.sync()?;
            Ok(over)
        };
        match finished() {
            Ok(over) => {
                self.update_index(&over, Hold::Over);
                Ok(RecoveryOutcome::Interrupted)
            }
            // For example a full disk: the job stays as it is and is checked again.
            Err(error) => {
                log::warn!(error:% = error; "interrupted job not finished");
                self.update_index(status, Hold::Unowned);
                Ok(RecoveryOutcome::Indexed)
            }
        }
    }

    fn update_index(&self, status: &StatusFile, hold: Hold) {
        let bytes = if hold == Hold::Over { status.bytes.unwrap_or(0) } else { 0 };
        let (line, idempotency) = (status.line.clone(), status.idempotency.clone());
        let entry = IndexEntry { line, order: status.order(), bytes, hold, idempotency };
        self.writer.index().put(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::fixtures::{at, id, request, result, store};
    use cofferdam_core::job::JobStatus;

    #[test]
    fn a_job_that_is_created_while_others_are_checked_stays_with_its_record() {
        let (_place, store) = store();
        let mut record = store.create(&id("a"), &request(), at(0)).unwrap();
        let (writer, opened) = (store.writer().unwrap(), store.opened());
        let kept = store.writer_dirs().unwrap();
        let settle = || RecoveryPass::new(writer, &kept).settle(&opened.runs, &id("a")).unwrap();
        // A list finds the job on the disk and not in the index. Until it checks the job, the record
        // adds it.
        assert!(matches!(settle(), RecoveryOutcome::Live));
        record.started(at(0)).unwrap();
        assert!(matches!(settle(), RecoveryOutcome::Live));
        assert_eq!(store.result(&id("a")), Ok(None));
        assert_eq!(store.line(&id("a")).unwrap().unwrap().status, JobStatus::Running);
        // Or it has yet to add it.
        let entry = writer.index().remove(&id("a")).unwrap();
        assert!(matches!(settle(), RecoveryOutcome::Live));
        assert!(writer.index().get(&id("a")).is_none());
        writer.index().put(entry);
        record.finish(&result("a", 0)).unwrap();
        assert!(matches!(settle(), RecoveryOutcome::Indexed));
        assert_eq!(store.result(&id("a")), Ok(Some(result("a", 0))));
    }
}
