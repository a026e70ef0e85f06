//! Bringing a store in order: at its opening, and whenever a job turns out to be nobody's.

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
use super::store::{RunStore, StoreSettings, StoreWriter, WriterDirs, locked};
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

/// How much of requests and results is read at the opening, bytes; the files of further jobs
/// that are over are read when somebody asks for them.
const READ_BYTES_MAX: u64 = 512 << 20;

/// What was found, and done, when a store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Jobs whose service had died, finished as failed.
    pub interrupted: Vec<JobId>,
    /// What was no record any more.
    pub quarantined: Vec<Quarantined>,
    /// How many jobs there are now.
    pub jobs: u64,
}

/// What became of one entry of `runs`.
enum RecoveryOutcome {
    /// It is a job, and in the index.
    WriterDirs,
    /// Likewise; its end is what was written just now.
    Interrupted,
    /// It is none.
    Corrupt(String),
    /// It is not there any more.
    Gone,
}

/// One pass over jobs.
struct RecoveryPass<'a> {
    writer: &'a StoreWriter,
    kept: &'a WriterDirs,
    claims: Claims<'a>,
    budget_bytes: u64,
    now: SystemTime,
}

impl RunStore {
    /// Opens the store in `directory` for a service, which is its only one: makes it where it is
    /// not there, and brings it in order. Jobs whose owner is dead are finished as interrupted,
    /// what is no record any more is put into quarantine, half-made and half-removed jobs go.
    ///
    /// # Errors
    /// [`StoreError::Owned`] where another service has it; a directory that is none, is somebody
    /// else's, or cannot be written.
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
                RecoveryOutcome::WriterDirs | RecoveryOutcome::Gone => {}
            }
        }
        pass.claims.sweep()?;
        prune(&kept.quarantine, writer.settings.retention, pass.now)?;
        recovered.jobs = u64::try_from(writer.index().len()).unwrap_or(u64::MAX);
        Ok(recovered)
    }

    /// Looks at jobs of which only their files tell, whether they are known or not.
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
            // Meanwhile another thread may have settled it.
            let hold = writer.index().get(id).map(|entry| entry.hold);
            if matches!(hold, Some(Hold::Ours | Hold::Over)) {
                continue;
            }
            match pass.settle(&opened.runs, id)? {
                RecoveryOutcome::WriterDirs | RecoveryOutcome::Interrupted => {}
                RecoveryOutcome::Gone => writer.index().remove_unless_ours(id),
                // Somebody may be putting a record there just now: the next opening decides.
                RecoveryOutcome::Corrupt(_) if hold.is_none() => {}
                RecoveryOutcome::Corrupt(reason) => {
                    self.quarantine(OsStr::new(id.as_str()), reason);
                    writer.index().remove(id);
                }
            }
        }
        Ok(())
    }

    /// Takes into the index what it lacks, and out of it what is not on the disk any more. Costs
    /// a look at two directories where nothing has changed.
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
            // One that was made after the names were read is still there.
            if opened.runs.entry(id.as_str())?.is_none() {
                writer.index().remove_unless_ours(&id);
            }
        }
        self.settle(&new)?;
        *seen = Some(RunsState { changed_at, looked_at });
        Ok(())
    }

    /// Removes a directory that was being filled, or removed, by an owner that is dead.
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

    /// Takes one job into the index, finished where it was nobody's.
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
        match self.settle_in(&directory, id) {
            Ok(outcome) => Ok(outcome),
            Err(ReadFault::Absent) => Ok(RecoveryOutcome::Gone),
            Err(ReadFault::Corrupt(reason)) => Ok(RecoveryOutcome::Corrupt(reason)),
            Err(ReadFault::System(error)) => Err(error),
        }
    }

    fn settle_in(
        &mut self,
        directory: &StoreDir,
        id: &JobId,
    ) -> Result<RecoveryOutcome, ReadFault> {
        let mut found = inspect(directory, id, &mut self.budget_bytes)?;
        if let RecordState::Live(status, _) | RecordState::StaleStatus(status) = &found {
            let is_ours = status.owner == self.kept.owner.name();
            if is_ours && self.writer.index().get(id).is_none() {
                // It is being taken just now, and its record is about to update_index it.
                return Ok(RecoveryOutcome::Gone);
            }
            if !is_ours && !self.claims.claim(&status.owner).map_err(ReadFault::System)? {
                self.open_writer(status, Hold::Unowned);
                return Ok(RecoveryOutcome::WriterDirs);
            }
            // Its owner may have finished it since, and only then have died.
            found = inspect(directory, id, &mut self.budget_bytes)?;
        }
        match found {
            RecordState::Over(status) => {
                self.open_writer(&status, Hold::Over);
                Ok(RecoveryOutcome::WriterDirs)
            }
            RecordState::StaleStatus(status) => {
                let repaired = json_file(directory, STATUS, &status)
                    .and_then(|contents| directory.replace(STATUS, &contents));
                if let Err(error) = repaired {
                    log::warn!(error:% = error; "job status not repaired");
                }
                self.open_writer(&status, Hold::Over);
                Ok(RecoveryOutcome::WriterDirs)
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
        // Artifacts that no result lists are nobody's.
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
                self.open_writer(&over, Hold::Over);
                Ok(RecoveryOutcome::Interrupted)
            }
            // A full disk, say: it stays as it is and is looked at again.
            Err(error) => {
                log::warn!(error:% = error; "interrupted job not finished");
                self.open_writer(status, Hold::Unowned);
                Ok(RecoveryOutcome::WriterDirs)
            }
        }
    }

    fn open_writer(&self, status: &StatusFile, hold: Hold) {
        let bytes = if hold == Hold::Over { status.bytes.unwrap_or(0) } else { 0 };
        let (line, idempotency) = (status.line.clone(), status.idempotency.clone());
        let entry = IndexEntry { line, order: status.order(), bytes, hold, idempotency };
        self.writer.index().put(entry);
    }
}
