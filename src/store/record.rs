//! The writer's side of one job.

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
use super::store::RunStore;
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

/// One live job, of whose record this is the only writer. Dropped before [`finish`](Self::finish),
/// it leaves a job that is finished as interrupted when somebody next looks.
#[derive(Debug)]
pub struct JobRecord {
    store: RunStore,
    id: JobId,
    status: StatusFile,
    is_done: bool,
}

impl RunStore {
    /// Takes a job in: from its return on it is on the disk as `queued`. The request is recorded
    /// with `id` as its name.
    ///
    /// # Errors
    /// [`StoreError::Exists`] where anything has that name; then, and with every other error,
    /// nothing is left behind.
    pub fn create(
        &self,
        id: &JobId,
        request: &RunJobRequest,
        queued_at: SystemTime,
    ) -> Result<JobRecord, StoreError> {
        self.create_named(id, request, queued_at, None)
    }

    /// As [`RunStore::create`], of a request that a client has named: from then on
    /// [`RunStore::by_idempotency`] knows it, for as long as its record is kept.
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
        let (opened, kept) = (self.opened(), self.kept()?);
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

/// Makes the directory of a job, under a name that is none, with what it has from the beginning.
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
    /// The last job that came with that key: its name, the digest of its request, and when it was
    /// taken.
    pub fn by_idempotency(&self, key: &str) -> Option<(JobId, Sha256, SystemTime)> {
        let writer = self.writer().ok()?;
        let (entry, opened) = (writer.index().by_idempotency(key)?.clone(), self.opened());
        let IndexEntry { line, order, idempotency, .. } = entry;
        if opened.runs.entry(line.job_id.as_str()).is_ok_and(|found| found.is_none()) {
            // Somebody has removed it.
            return None;
        }
        let taken_at = SystemTime::UNIX_EPOCH + Duration::from_nanos(order);
        Some((line.job_id, idempotency?.body, taken_at))
    }
}

impl JobRecord {
    /// The job's name.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Notes what the policy said and what is executed, for the record of a job that is cut off.
    /// It is written with the next change of state.
    pub fn decided(&mut self, policy: PolicyDecision, executable: Option<Executable>) {
        self.status.policy = Some(policy);
        self.status.executable = executable;
    }

    /// Records that a worker has begun.
    pub fn started(&mut self, at: SystemTime) -> Result<(), StoreError> {
        self.status.line.status = JobStatus::Running;
        self.status.line.started_at = Some(rfc3339(at));
        let directory = self.directory()?;
        directory.replace(STATUS, &json_file(&directory, STATUS, &self.status)?)?;
        self.update_index(Hold::Ours);
        Ok(())
    }

    /// What is kept of stdout, for appending.
    pub fn stdout(&self) -> io::Result<File> {
        self.append("stdout")
    }

    /// What is kept of stderr, for appending.
    pub fn stderr(&self) -> io::Result<File> {
        self.append("stderr")
    }

    fn append(&self, name: &str) -> io::Result<File> {
        let directory = self.store.opened().runs.child(self.id.as_str())?;
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(directory.fd(), name, flags, Mode::empty())?))
    }

    /// The directory that artifacts are put into, each at its own path; made when first asked for.
    pub fn artifacts(&self) -> Result<OwnedFd, StoreError> {
        Ok(self.directory()?.own_child(ARTIFACTS)?.into_fd())
    }

    /// Where the artifact `path` is kept, as a `file://` of this host.
    pub fn artifact_uri(&self, path: &RelPath) -> String {
        let opened = self.store.opened();
        file_uri(&opened.runs.path().join(self.id.as_str()).join(ARTIFACTS).join(path.as_path()))
    }

    /// Records what the workspace was, as `snapshot.json`. Where that has `files`, `bytes` and
    /// `excluded`, and `hash`, an interrupted job's result tells them.
    pub fn write_snapshot(&self, value: &impl Serialize) -> Result<(), StoreError> {
        let directory = self.directory()?;
        directory.replace(SNAPSHOT, &json_file(&directory, SNAPSHOT, value)?)
    }

    /// Whether somebody asked for its end, in this process or in another.
    pub fn cancel_requested(&self) -> bool {
        self.store.cancel_requested(&self.id)
    }

    /// Records what came of it. On return it is on the disk, with the outputs. A result of more
    /// than 64 MiB is cut to that, as [`truncate`](crate::store::truncate) does.
    ///
    /// # Errors
    /// A result of another job, or of one that is not over; [`StoreError::Unknown`] where the
    /// record was removed; or the disk's. After an error that [may pass](StoreError::may_pass) it
    /// can be called again. Meanwhile lists of this store tell the job as over. A record that is
    /// dropped without it is finished as interrupted when somebody next looks, unless the result
    /// was on the disk already.
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

    /// Writes all that tells of the end, from the beginning; what `status.json` holds then.
    fn write_end(&self, result: &RunJobResult) -> Result<StatusFile, StoreError> {
        let directory = self.directory()?;
        let mut result_json = json_file(&directory, RESULT, result)?;
        if longer(&result_json, RESULT_BYTES_MAX) {
            let mut cut = result.clone();
            // The line's own end is a byte.
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

    /// Removes everything of a job that was not to be taken after all.
    pub fn discard(mut self) {
        self.is_done = true;
        let opened = self.store.opened();
        let runs = &opened.runs;
        let (Ok(writer), Ok(kept)) = (self.store.writer(), self.store.kept()) else { return };
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

    /// Tells the index of it.
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

/// Waits until an output is on the disk, unless there is none.
fn sync_output(directory: &StoreDir, name: &str) -> Result<(), StoreError> {
    match directory.open_file(name) {
        Ok((_, 0)) | Err(ReadFault::Absent) => Ok(()),
        Ok((file, _)) => fsync(&file).map_err(|errno| directory.error("fsync", name, errno)),
        Err(fault) => Err(error_at(directory, name, fault)),
    }
}

/// A value as a file of the store holds it: a line of JSON.
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
    /// Asks for the end of a job that somebody else may run: whoever does will see it.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] where there is no such job.
    pub fn request_cancel(&self, id: &JobId) -> Result<(), StoreError> {
        let directory = self.job(id)?.ok_or_else(|| StoreError::Unknown { id: id.clone() })?;
        match directory.create_file(CANCEL) {
            Ok(_) | Err(StoreError::System { source: Errno::EEXIST, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody has asked for the end of a job.
    pub fn cancel_requested(&self, id: &JobId) -> bool {
        let directory = self.job(id).ok().flatten();
        directory
            .is_some_and(|directory| directory.entry(CANCEL).is_ok_and(|found| found.is_some()))
    }
}

/// The `file://` of an absolute path; what is not plain in a URI is percent-encoded.
fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // A String takes whatever is written into it.
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
    fn what_is_not_plain_is_encoded() {
        for (path, uri) in [
            (&b"/a/b-c._~9"[..], "file:///a/b-c._~9"),
            (b"/a b/\xC3\xA9%?#\n", "file:///a%20b/%C3%A9%25%3F%23%0A"),
            (b"/\xFF", "file:///%FF"),
        ] {
            assert_eq!(file_uri(Path::new(OsStr::from_bytes(path))), uri);
        }
    }
}
