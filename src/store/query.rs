//! Reads jobs: results, states, lists, outputs and artifacts.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};

use super::error::{ReadFault, StoreError};
use super::index::{Hold, Index, IndexEntry, Key};
use super::run_store::{RunStore, StoreSettings, locked};
use crate::store::files::directory::{StoreDir, file_type};
use crate::store::files::inspect::{ARTIFACTS, RESULT, STATUS, error_at, read_result, read_status};
use crate::store::files::owner::is_dead;
use cofferdam_core::Stream;
use cofferdam_core::job::{JobId, JobLine, JobStatus, RunJobResult};
use cofferdam_core::values::rel_path::RelPath;

/// How old the state of another process's job may be in a list.
const SETTLED_FOR: Duration = Duration::from_secs(1);

impl RunStore {
    /// The result of a job; nothing if it has not ended or does not exist.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the record is damaged. It is then moved to the quarantine, and the
    /// job no longer exists.
    pub fn result(&self, id: &JobId) -> Result<Option<RunJobResult>, StoreError> {
        self.settle_if_foreign(id)?;
        let Some(directory) = self.job(id)? else { return Ok(None) };
        match read_result(&directory, id) {
            Ok(result) => Ok(Some(result)),
            Err(ReadFault::Absent) => Ok(None),
            Err(fault) => {
                let error = error_at(&directory, RESULT, fault);
                if let StoreError::Corrupt { reason, .. } = &error {
                    self.quarantine_unless_live(id, reason);
                }
                Err(error)
            }
        }
    }

    /// The state of a job; nothing if it does not exist.
    pub fn line(&self, id: &JobId) -> Result<Option<JobLine>, StoreError> {
        self.settle_if_foreign(id)?;
        let Some(directory) = self.job(id)? else { return Ok(None) };
        current_line(&directory, id)
    }

    /// Lists at most `limit` jobs (1000 at most), the newest first, in one state or in any, and the
    /// cursor of the next page, if there is one. Jobs that come and go between two pages neither
    /// repeat nor hide others. The list includes jobs of other processes; the state of one that has
    /// not ended may be a second old.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] if no list returned the cursor.
    pub fn list(
        &self,
        status: Option<JobStatus>,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<(Vec<JobLine>, Option<String>), StoreError> {
        let after = match cursor {
            Some(cursor) => Some(Key::parse(cursor).ok_or(StoreError::BadCursor)?),
            None => None,
        };
        match &self.inner.writer {
            Some(writer) => {
                self.refresh()?;
                let settled_at = *locked(&writer.settling);
                if settled_at.is_none_or(|at| at.elapsed() >= SETTLED_FOR) {
                    self.settle_unowned();
                }
                Ok(writer.index().page(status, limit, after.as_ref()))
            }
            None => Ok(self.read_index()?.page(status, limit, after.as_ref())),
        }
    }

    /// The index of a store that is open for reading only. Leaves out unreadable records.
    fn read_index(&self) -> Result<Index, StoreError> {
        let mut index = Index::default();
        for name in self.opened().runs.names()? {
            let Some(id) = name.to_str().and_then(|name| JobId::parse(name).ok()) else {
                continue;
            };
            let Ok(Some(directory)) = self.job(&id) else { continue };
            let Ok(status) = read_status(&directory, &id) else { continue };
            let order = status.order();
            let line = match status.line.status.is_terminal() {
                true => status.line,
                false => self.line(&id).ok().flatten().unwrap_or(status.line),
            };
            index.put(IndexEntry { line, order, bytes: 0, hold: Hold::Over, idempotency: None });
        }
        Ok(index)
    }

    /// The stored bytes of an output so far.
    pub fn stream_bytes(&self, id: &JobId, stream: Stream) -> Result<u64, StoreError> {
        Ok(self.open_output(id, stream)?.1)
    }

    /// Opens a stored output for reading. It grows while the job runs.
    pub fn open_stream(&self, id: &JobId, stream: Stream) -> Result<File, StoreError> {
        Ok(self.open_output(id, stream)?.0)
    }

    fn open_output(&self, id: &JobId, stream: Stream) -> Result<(File, u64), StoreError> {
        let directory = self.job(id)?.ok_or_else(|| StoreError::Unknown { id: id.clone() })?;
        let name = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        directory.open_file(name).map_err(|fault| error_at(&directory, name, fault))
    }

    /// Opens the stored artifact `path` for reading. Opens regular files only, and follows no
    /// link.
    pub fn open_artifact(&self, id: &JobId, path: &RelPath) -> Result<File, StoreError> {
        let directory = self.job(id)?.ok_or_else(|| StoreError::Unknown { id: id.clone() })?;
        let failed = |errno| directory.error("open", artifact_name(path), errno);
        let artifacts = directory.child(ARTIFACTS).map_err(failed)?;
        // Checked before it is opened: opening a device can have effects.
        let looked_at = open_beneath(&artifacts, path, OFlag::O_PATH).map_err(failed)?;
        if file_type(&fstat(&looked_at).map_err(failed)?) != SFlag::S_IFREG {
            let reason = "not a regular file".to_owned();
            return Err(StoreError::Corrupt {
                path: directory.path_of(artifact_name(path)),
                reason,
            });
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        Ok(File::from(open_beneath(&artifacts, path, flags).map_err(failed)?))
    }

    /// The directory of a job; `None` without one.
    pub(super) fn job(&self, id: &JobId) -> Result<Option<StoreDir>, StoreError> {
        let opened = self.opened();
        match opened.runs.child(id.as_str()) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
            Err(errno) => Err(opened.runs.error("open", id.as_str(), errno)),
        }
    }

    /// Finishes a job of another process if its owner is dead.
    fn settle_if_foreign(&self, id: &JobId) -> Result<(), StoreError> {
        let Some(writer) = &self.inner.writer else {
            self.settle_if_dead(id);
            return Ok(());
        };
        let hold = writer.index().get(id).map(|entry| entry.hold);
        match hold {
            Some(Hold::Ours | Hold::Over) => Ok(()),
            Some(Hold::Unowned) | None => self.settle(std::slice::from_ref(id)),
        }
    }

    /// The same for a store that is open for reading only. The job stays as it is if its record
    /// cannot be written.
    fn settle_if_dead(&self, id: &JobId) {
        let Ok(Some(directory)) = self.job(id) else { return };
        let Ok(status) = read_status(&directory, id) else { return };
        if status.line.status.is_terminal() || !is_dead(self.path(), &status.owner) {
            return;
        }
        let settled = Self::open_shared(self.path(), StoreSettings::default())
            .and_then(|store| store.settle(std::slice::from_ref(id)));
        if let Err(error) = settled {
            log::warn!(error:% = error; "job of a dead process not finished");
        }
    }

    fn quarantine_unless_live(&self, id: &JobId, reason: &str) {
        let Some(writer) = &self.inner.writer else { return };
        let hold = writer.index().get(id).map(|entry| entry.hold);
        if hold == Some(Hold::Over) {
            self.quarantine(OsStr::new(id.as_str()), format!("{RESULT}: {reason}"));
            writer.index().remove(id);
        }
    }
}

/// The state of a job by its files. The result is written before the status.
fn current_line(directory: &StoreDir, id: &JobId) -> Result<Option<JobLine>, StoreError> {
    let status = match read_status(directory, id) {
        Ok(status) => status,
        Err(ReadFault::Absent) => return Ok(None),
        Err(fault) => return Err(error_at(directory, STATUS, fault)),
    };
    if !status.line.status.is_terminal()
        && let Ok(result) = read_result(directory, id)
    {
        return Ok(Some(JobLine::from(&result)));
    }
    Ok(Some(status.line))
}

fn open_beneath(directory: &StoreDir, path: &RelPath, flags: OFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new().flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS
            | ResolveFlag::RESOLVE_NO_XDEV,
    );
    openat2(directory.fd(), path.as_path(), how)
}

fn artifact_name(path: &RelPath) -> String {
    format!("{ARTIFACTS}/{path}")
}
