//! The directory of all evaluations.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::files::{json_bytes, parsed, remove, remove_renamed};
use super::record_file::RecordFile;
use crate::store::{ReadFault, ServiceLock, StoreDir, StoreError, errno_of};
use cofferdam_core::values::utc::rfc3339;

const RECORD: &str = "record.json";
const RESULT: &str = "result.json";
const EVENTS: &str = "events.jsonl";
const PATCH: &str = "patch";
/// The largest `record.json`, bytes.
const RECORD_BYTES_MAX: u64 = 4 << 20;
/// The largest result that is kept, bytes, besides its patch.
pub const RESULT_BYTES_MAX: usize = 128 << 20;
/// The largest result that is read, bytes.
const RESULT_READ_BYTES_MAX: u64 = 1 << 30;
/// The largest patch that is read, bytes.
const PATCH_BYTES_MAX: u64 = 1 << 30;
/// The most that stays set aside.
const QUARANTINE_ENTRIES_MAX: usize = 1000;
/// The length of the time and the unique part that are appended to a name there.
const TIME_BYTES: usize = "2026-02-28T23:59:59.007Z-00000000000000000000000000000000".len();
/// How much of a name is kept in the quarantine, bytes.
const NAME_BYTES_MAX: usize = 200;

/// The directory of records in a store.
const EVALUATIONS: &str = "evaluations";

/// The records of one store, which one service at a time owns.
#[derive(Debug)]
pub struct EvaluationRecords {
    root: StoreDir,
    batches: StoreDir,
    quarantine: StoreDir,
    lock: Mutex<Option<ServiceLock>>,
}

/// A record that was there at the start.
#[derive(Debug)]
pub enum FoundRecord {
    /// It has ended, and all is written.
    Over(RecordFile),
    /// Its result is there, but the end was not recorded.
    Unrecorded(RecordFile, Vec<u8>),
    /// It has not ended.
    Live(RecordFile),
}

/// Whether the store has records of evaluations, or cannot say so.
pub fn has_records(store: &Path) -> bool {
    store.join(EVALUATIONS).try_exists().unwrap_or(true)
}

impl EvaluationRecords {
    /// Opens `<store>/evaluations`, and creates it if missing.
    ///
    /// # Errors
    /// It cannot be used, or another service owns it.
    pub fn open(store: &Path) -> Result<Self, StoreError> {
        let root = StoreDir::open_root(store)?.own_child(EVALUATIONS)?;
        let lock = ServiceLock::take(&root)?;
        let (batches, quarantine) = (root.own_child("batches")?, root.own_child("quarantine")?);
        Ok(Self { root, batches, quarantine, lock: Mutex::new(Some(lock)) })
    }

    /// Lets another service own the records. Nothing may be written from now on.
    pub fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The directory of batches.
    pub fn batches(&self) -> &StoreDir {
        &self.batches
    }

    /// The names of what may be records. What was not finished is removed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Vec<OsString>, StoreError> {
        let mut names = self.root.names()?;
        names.retain(|name| {
            let is_unfinished = name.as_bytes().starts_with(b".");
            if is_unfinished {
                remove(&self.root, name);
            }
            let is_ours = ["batches", "quarantine", "lock"].iter().any(|ours| name == ours);
            !is_unfinished && !is_ours
        });
        Ok(names)
    }

    /// Creates the record of an evaluation. On return it is on the disk.
    ///
    /// # Errors
    /// The disk failed; nothing is left behind.
    pub fn create(&self, record: &RecordFile) -> Result<(), StoreError> {
        let id = record.eval_id.as_str();
        let new_name = format!(".new-{id}");
        let made = self.fill(&new_name, record).and_then(|()| {
            let moved = self.root.move_to(&new_name, &self.root, id);
            moved.map_err(|errno| self.root.error("rename", id, errno))
        });
        if made.is_err() {
            remove(&self.root, OsStr::new(&new_name));
        }
        made?;
        self.root.sync().inspect_err(|_| self.remove(id))
    }

    fn fill(&self, name: &str, record: &RecordFile) -> Result<(), StoreError> {
        let root = &self.root;
        mkdirat(root.fd(), name, Mode::S_IRWXU)
            .map_err(|errno| root.error("mkdir", name, errno))?;
        let directory = root.child(name).map_err(|errno| root.error("open", name, errno))?;
        directory.create_file(EVENTS)?;
        directory.write_new(RECORD, &json_bytes(&directory, RECORD, record)?)
    }

    /// Replaces `record.json`.
    ///
    /// # Errors
    /// The disk failed.
    pub fn update(&self, record: &RecordFile) -> Result<(), StoreError> {
        let directory = self.directory(&record.eval_id)?;
        directory.replace(RECORD, &json_bytes(&directory, RECORD, record)?)
    }

    /// Writes what an evaluation left. On return the result is on the disk.
    ///
    /// # Errors
    /// The disk failed.
    pub fn write_result(
        &self,
        id: &str,
        result: &[u8],
        patch: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let directory = self.directory(id)?;
        if let Some(patch) = patch {
            directory.replace(PATCH, patch)?;
        }
        directory.replace(RESULT, result)?;
        directory.sync()
    }

    /// Reads a record as the last service left it.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    pub fn inspect(&self, id: &str) -> Result<FoundRecord, ReadFault> {
        let fault = |errno| ReadFault::of("open", self.root.path_of(id), errno);
        let directory = self.root.child(id).map_err(fault)?;
        let record: RecordFile = parsed(&directory.read(RECORD, RECORD_BYTES_MAX)?)?;
        if record.eval_id != id {
            return Err(ReadFault::Corrupt("of another evaluation".to_owned()));
        }
        if record.has_ended() {
            check_ends(&directory, id)?;
            directory.open_file(EVENTS)?;
            return Ok(FoundRecord::Over(record));
        }
        match directory.read(RESULT, RESULT_READ_BYTES_MAX) {
            Ok(result) => Ok(FoundRecord::Unrecorded(record, result)),
            Err(ReadFault::Absent) => Ok(FoundRecord::Live(record)),
            Err(fault) => Err(fault),
        }
    }

    /// The result as JSON.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn result(&self, id: &str) -> Result<Vec<u8>, StoreError> {
        let directory = self.directory(id)?;
        let read = directory.read(RESULT, RESULT_READ_BYTES_MAX);
        read.map_err(|fault| fault.at(directory.path_of(RESULT)))
    }

    /// The patch; `None` without one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn patch(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let directory = self.directory(id)?;
        match directory.read(PATCH, PATCH_BYTES_MAX) {
            Ok(patch) => Ok(Some(patch)),
            Err(ReadFault::Absent) => Ok(None),
            Err(fault) => Err(fault.at(directory.path_of(PATCH))),
        }
    }

    /// The events, to be read.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn open_events(&self, id: &str) -> Result<(File, u64), StoreError> {
        let directory = self.directory(id)?;
        directory.open_file(EVENTS).map_err(|fault| fault.at(directory.path_of(EVENTS)))
    }

    /// The events, to be appended to.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn append_events(&self, id: &str) -> Result<File, StoreError> {
        self.open_events_as(id, OFlag::O_WRONLY | OFlag::O_APPEND)
    }

    /// The events, to be read, cut and appended to; made if they are missing.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn open_events_to_repair(&self, id: &str) -> Result<File, StoreError> {
        self.open_events_as(id, OFlag::O_RDWR | OFlag::O_CREAT)
    }

    fn open_events_as(&self, id: &str, flags: OFlag) -> Result<File, StoreError> {
        let directory = self.directory(id)?;
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        openat(directory.fd(), EVENTS, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(File::from)
            .map_err(|errno| directory.error("open", EVENTS, errno))
    }

    /// The error of an operation on the events.
    pub fn events_error(&self, id: &str, error: &std::io::Error) -> StoreError {
        StoreError::System {
            operation: "write",
            path: self.root.path_of(id).join(EVENTS),
            source: errno_of(error),
        }
    }

    /// Removes a record. What cannot be removed goes at the next start.
    pub fn remove(&self, id: &str) {
        remove_renamed(&self.root, id);
    }

    /// Sets something of `directory` aside that is no record.
    pub fn set_aside(&self, directory: &StoreDir, name: &OsStr, reason: &str) {
        let kept = name.as_bytes().get(..NAME_BYTES_MAX).unwrap_or(name.as_bytes());
        let time = rfc3339(SystemTime::now());
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let new_name = [kept, b"-", time.as_bytes(), b"-", unique.as_bytes()].concat();
        let moved = directory.move_to(name, &self.quarantine, OsStr::from_bytes(&new_name));
        let name = name.as_bytes().escape_ascii().to_string();
        log::warn!(record = name, reason, moved:? = moved; "evaluation's record set aside");
    }

    /// Removes the oldest of what was set aside, beyond the maximum.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn prune_quarantine(&self) -> Result<(), StoreError> {
        let mut names = self.quarantine.names()?;
        // The end of a name is its time.
        let time_of = |name: &OsString| {
            let bytes = name.as_bytes();
            bytes.get(bytes.len().saturating_sub(TIME_BYTES)..).unwrap_or_default().to_vec()
        };
        names.sort_by_cached_key(time_of);
        let too_many = names.len().saturating_sub(QUARANTINE_ENTRIES_MAX);
        names.iter().take(too_many).for_each(|name| remove(&self.quarantine, name));
        Ok(())
    }

    /// The directory of the evaluations.
    pub fn root(&self) -> &StoreDir {
        &self.root
    }

    fn directory(&self, id: &str) -> Result<StoreDir, StoreError> {
        self.root.child(id).map_err(|errno: Errno| self.root.error("open", id, errno))
    }
}

/// Looks at the beginning and the end of a result; reading all of them would take long.
fn check_ends(directory: &StoreDir, id: &str) -> Result<(), ReadFault> {
    let (file, bytes) = directory.open_file(RESULT)?;
    let begins = format!("{{\"eval_id\":\"{id}\",");
    let (mut head, mut last) = (vec![0; begins.len()], [0]);
    let read = file
        .read_exact_at(&mut head, 0)
        .and_then(|()| file.read_exact_at(&mut last, bytes.saturating_sub(1)));
    match read {
        Ok(()) if head == begins.as_bytes() && last == *b"}" => Ok(()),
        _ => Err(ReadFault::Corrupt(format!("{RESULT} is damaged"))),
    }
}
