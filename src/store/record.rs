//! Writes the record of one job.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::fsync;
use serde::Serialize;

use super::error::{ReadFault, StoreError};
use super::index::{Hold, IndexEntry};
use super::removal::{TEMP, TOMBSTONE, remove_temp, temp_name};
use super::run_store::RunStore;
use crate::store::files::directory::StoreDir;
use crate::store::files::inspect::{
    ARTIFACTS, CANCEL, REQUEST, REQUEST_BYTES_MAX, RESULT, RESULT_BYTES_MAX, SNAPSHOT, STATUS,
    error_at, record_bytes, result_fault,
};
use crate::store::files::status_file::StatusFile;
use crate::store::truncate::truncate;
use cofferdam_core::job::{
    Executable, Idempotency, JobId, JobLine, JobStatus, PolicyDecision, RunJobRequest,
    RunJobResult, Sha256,
};
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::values::utc::rfc3339;

/// The only writer of the record of a live job. A record that is dropped before
/// [`finish`](Self::finish) is finished as interrupted when it is next read.
#[derive(Debug)]
pub struct JobRecord {
    store: RunStore,
    id: JobId,
    status: StatusFile,
    is_done: bool,
}

impl RunStore {
    /// Creates the record of a job. On return the job is on the disk as `queued`, and its request is
    /// recorded with `id`.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the id is in use. After any error nothing is left behind.
    pub fn create(
        &self,
        id: &JobId,
        request: &RunJobRequest,
        queued_at: SystemTime,
    ) -> Result<JobRecord, StoreError> {
        self.create_named(id, request, queued_at, None)
    }

    /// As [`RunStore::create`], for a request with an `Idempotency-Key`, by which
    /// [`RunStore::by_idempotency`] finds the job for as long as its record is kept.
    ///
    /// # Errors
    /// As [`RunStore::create`].
    pub fn create_named(
        &self,
        id: &JobId,
        request: &RunJobRequest,
        queued_at: SystemTime,
        idempotency: Option<Idempotency>,
    ) -> Result<JobRecord, StoreError> {
        self.reopen_if_moved()?;
        let (opened, kept) = (self.opened(), self.writer_dirs()?);
        let runs = &opened.runs;
        let exists = || StoreError::Exists { id: id.clone() };
        if runs.entry(id.as_str())?.is_some() {
            return Err(exists());
        }
        let status =
            StatusFile { idempotency, ..StatusFile::queued(id, queued_at, kept.owner.name()) };
        let named = RunJobRequest { job_id: Some(id.clone()), ..request.clone() };
        let request_json = json_file(runs, REQUEST, &named)?;
        if longer(&request_json, REQUEST_BYTES_MAX) {
            let reason = format!("more than {REQUEST_BYTES_MAX} bytes");
            return Err(StoreError::NotRecordable { path: runs.path_of(id.as_str()), reason });
        }
        let status_json = json_file(runs, STATUS, &status)?;
        let new_name = temp_name(TEMP, kept.owner.name());
        let filled = fill(runs, &new_name, &request_json, &status_json).and_then(|()| {
            runs.move_to(&new_name, runs, id.as_str()).map_err(|errno| match errno {
                Errno::EEXIST => exists(),
                errno => runs.error("rename", id.as_str(), errno),
            })
        });
        if let Err(error) = filled {
            remove_temp(runs, &new_name);
            return Err(error);
        }
        let record = JobRecord { store: self.clone(), id: id.clone(), status, is_done: false };
        record.update_index(Hold::Ours);
        match runs.sync() {
            Ok(()) => Ok(record),
            Err(error) => {
                record.discard();
                Err(error)
            }
        }
    }
}

/// Creates the directory of a job under a temporary name, with its first files.
fn fill(
    runs: &StoreDir,
    name: &str,
    request_json: &[u8],
    status_json: &[u8],
) -> Result<(), StoreError> {
    mkdirat(runs.fd(), name, Mode::S_IRWXU).map_err(|errno| runs.error("mkdir", name, errno))?;
    let directory = runs.child(name).map_err(|errno| runs.error("open", name, errno))?;
    directory.create_file("stdout")?;
    directory.create_file("stderr")?;
    directory.write_new(REQUEST, request_json)?;
    directory.write_new(STATUS, status_json)
}

impl RunStore {
    /// The last job of an `Idempotency-Key`: its id, the digest of its request, and when it was
    /// accepted.
    pub fn by_idempotency(&self, key: &str) -> Option<(JobId, Sha256, SystemTime)> {
        let writer = self.writer().ok()?;
        let (entry, opened) = (writer.index().by_idempotency(key)?.clone(), self.opened());
        let IndexEntry { line, order, idempotency, .. } = entry;
        if opened.runs.entry(line.job_id.as_str()).is_ok_and(|found| found.is_none()) {
            // The record was removed.
            return None;
        }
        let taken_at = SystemTime::UNIX_EPOCH + Duration::from_nanos(order);
        Some((line.job_id, idempotency?.body, taken_at))
    }
}

impl JobRecord {
    /// The job's id.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Notes the decision of the policy and the program, for the result of an interrupted job. Both
    /// are written with the next change of state.
    pub fn decided(&mut self, policy: PolicyDecision, executable: Option<Executable>) {
        self.status.policy = Some(policy);
        self.status.executable = executable;
    }

    /// Records that a worker has begun the job.
    pub fn started(&mut self, at: SystemTime) -> Result<(), StoreError> {
        self.status.line.status = JobStatus::Running;
        self.status.line.started_at = Some(rfc3339(at));
        let directory = self.directory()?;
        directory.replace(STATUS, &json_file(&directory, STATUS, &self.status)?)?;
        self.update_index(Hold::Ours);
        Ok(())
    }

    /// Opens the stored stdout for appending.
    pub fn stdout(&self) -> io::Result<File> {
        self.append("stdout")
    }

    /// Opens the stored stderr for appending.
    pub fn stderr(&self) -> io::Result<File> {
        self.append("stderr")
    }

    fn append(&self, name: &str) -> io::Result<File> {
        let directory = self.store.opened().runs.child(self.id.as_str())?;
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(directory.fd(), name, flags, Mode::empty())?))
    }

    /// Opens the directory of the artifacts, each at its own path; created on the first call.
    pub fn artifacts(&self) -> Result<OwnedFd, StoreError> {
        Ok(self.directory()?.own_child(ARTIFACTS)?.into_fd())
    }

    /// The `file://` URI of the artifact `path` on this host.
    pub fn artifact_uri(&self, path: &RelPath) -> String {
        let opened = self.store.opened();
        file_uri(&opened.runs.path().join(self.id.as_str()).join(ARTIFACTS).join(path.as_path()))
    }

    /// Records the snapshot as `snapshot.json`. The result of an interrupted job repeats its
    /// `files`, `bytes`, `excluded` and `hash`, if present.
    pub fn write_snapshot(&self, value: &impl Serialize) -> Result<(), StoreError> {
        let directory = self.directory()?;
        directory.replace(SNAPSHOT, &json_file(&directory, SNAPSHOT, value)?)
    }

    /// Whether this or another process asked to cancel the job.
    pub fn cancel_requested(&self) -> bool {
        self.store.cancel_requested(&self.id)
    }

    /// Records the result. On return the result and the outputs are on the disk. A result of more
    /// than 64 MiB is truncated to that, as [`truncate`](crate::store::truncate) does.
    ///
    /// # Errors
    /// The result is of another job or of a job that has not ended; the record was removed
    /// ([`StoreError::Unknown`]); or the disk failed. After an error that
    /// [may pass](StoreError::may_pass) call it again; until then lists of this store show the job
    /// as ended. A record that is dropped without this call is finished as interrupted when it is
    /// next read, unless the result is on the disk.
    pub fn finish(&mut self, result: &RunJobResult) -> Result<(), StoreError> {
        if let Some(fault) = result_fault(result, &self.id) {
            let path = self.store.opened().runs.path_of(self.id.as_str());
            return Err(StoreError::NotRecordable { path, reason: fault.to_owned() });
        }
        match self.write_end(result) {
            Ok(over) => {
                self.status = over;
                self.update_index(Hold::Over);
                self.is_done = true;
                Ok(())
            }
            Err(error) => {
                self.status.line = JobLine::from(result);
                self.update_index(Hold::Ours);
                Err(error)
            }
        }
    }

    /// Writes every file of an ended job. Returns the new contents of `status.json`.
    fn write_end(&self, result: &RunJobResult) -> Result<StatusFile, StoreError> {
        let directory = self.directory()?;
        let mut result_json = json_file(&directory, RESULT, result)?;
        if longer(&result_json, RESULT_BYTES_MAX) {
            let mut cut = result.clone();
            // The newline at the end is one byte.
            truncate(&mut cut, RESULT_BYTES_MAX - 1);
            result_json = json_file(&directory, RESULT, &cut)?;
        }
        for name in ["stdout", "stderr"] {
            sync_output(&directory, name)?;
        }
        directory.replace(RESULT, &result_json)?;
        let bytes = record_bytes(&directory, result);
        let over = StatusFile::over(result, Some(&self.status), bytes);
        directory.replace(STATUS, &json_file(&directory, STATUS, &over)?)?;
        directory.sync()?;
        Ok(over)
    }

    /// Removes a job that was not accepted after all.
    pub fn discard(mut self) {
        self.is_done = true;
        let opened = self.store.opened();
        let runs = &opened.runs;
        let (Ok(writer), Ok(kept)) = (self.store.writer(), self.store.writer_dirs()) else {
            return;
        };
        let gone = temp_name(TOMBSTONE, kept.owner.name());
        match runs.move_to(self.id.as_str(), runs, &gone) {
            Ok(()) => remove_temp(runs, &gone),
            Err(errno) => log::warn!(job = self.id.as_str(), errno:% = errno; "job not discarded"),
        }
        writer.index().remove(&self.id);
    }

    fn directory(&self) -> Result<StoreDir, StoreError> {
        let opened = self.store.opened();
        let runs = &opened.runs;
        let id = self.id.as_str();
        runs.child(id).map_err(|errno| match errno {
            Errno::ENOENT => StoreError::Unknown { id: self.id.clone() },
            errno => runs.error("open", id, errno),
        })
    }

    /// Updates the job in the index.
    fn update_index(&self, hold: Hold) {
        if let Ok(writer) = self.store.writer() {
            let (line, order) = (self.status.line.clone(), self.status.order());
            let bytes = self.status.bytes.unwrap_or(0);
            let idempotency = self.status.idempotency.clone();
            writer.index().put(IndexEntry { line, order, bytes, hold, idempotency });
        }
    }
}

impl Drop for JobRecord {
    fn drop(&mut self) {
        if !self.is_done
            && let Ok(writer) = self.store.writer()
        {
            writer.index().release(&self.id);
        }
    }
}

/// Waits until an output is on the disk, unless it is empty or missing.
fn sync_output(directory: &StoreDir, name: &str) -> Result<(), StoreError> {
    match directory.open_file(name) {
        Ok((_, 0)) | Err(ReadFault::Absent) => Ok(()),
        Ok((file, _)) => fsync(&file).map_err(|errno| directory.error("fsync", name, errno)),
        Err(fault) => Err(error_at(directory, name, fault)),
    }
}

/// A value as a file of the store: a line of JSON.
pub(super) fn json_file(
    directory: &StoreDir,
    name: &str,
    value: &impl Serialize,
) -> Result<Vec<u8>, StoreError> {
    let mut contents = serde_json::to_vec(value).map_err(|error| StoreError::NotRecordable {
        path: directory.path_of(name),
        reason: error.to_string(),
    })?;
    contents.push(b'\n');
    Ok(contents)
}

fn longer(contents: &[u8], bytes_max: u64) -> bool {
    u64::try_from(contents.len()).unwrap_or(u64::MAX) > bytes_max
}

impl RunStore {
    /// Asks the owner of a job to cancel it.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if there is no such job.
    pub fn request_cancel(&self, id: &JobId) -> Result<(), StoreError> {
        let directory = self.job(id)?.ok_or_else(|| StoreError::Unknown { id: id.clone() })?;
        match directory.create_file(CANCEL) {
            Ok(_) | Err(StoreError::System { source: Errno::EEXIST, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a process asked to cancel a job.
    pub fn cancel_requested(&self, id: &JobId) -> bool {
        let directory = self.job(id).ok().flatten();
        directory
            .is_some_and(|directory| directory.entry(CANCEL).is_ok_and(|found| found.is_some()))
    }
}

/// The `file://` URI of an absolute path. Bytes that are not plain in a URI are percent-encoded.
fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn bytes_that_are_not_plain_are_encoded() {
        for (path, uri) in [
            (&b"/a/b-c._~9"[..], "file:///a/b-c._~9"),
            (b"/a b/\xC3\xA9%?#\n", "file:///a%20b/%C3%A9%25%3F%23%0A"),
            (b"/\xFF", "file:///%FF"),
        ] {
            assert_eq!(file_uri(Path::new(OsStr::from_bytes(path))), uri);
        }
    }
}
