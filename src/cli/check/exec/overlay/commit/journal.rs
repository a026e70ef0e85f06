//! The journal of a commit, which outlives the process. It lies in the state directory, where no program of a
//! sandbox can write.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::apply::apply;
use super::part::open_parent;
use super::staging::is_staging;
use super::steps::CommitStep;
use crate::cli::check::exec::overlay::directories::TriedDirectory;
use crate::cli::check::exec::overlay::listing::printed;
use crate::evaluation::patch::entry::names_in;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::engine::StateDirectory;
use cofferdam_tree::{StopCheck, remove_tree};

/// The directory of all journals in the state directory.
const COMMITS: &str = "commits";
const VERSION: u32 = 1;
/// How long another commit on the same directory may take, and how often it is looked at.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// The longest journal that is read.
const JOURNAL_BYTES_MAX: u64 = 2 << 30;

/// All steps of a commit on one directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct CommitJournal {
    version: u32,
    /// The device and inode of the directory.
    identity: (u64, u64),
    staging: String,
    steps: Vec<CommitStep>,
}

impl CommitJournal {
    pub fn new(directory: &TriedDirectory, staging: &str, steps: &[CommitStep]) -> Self {
        let (identity, staging) = (directory.identity(), staging.to_owned());
        Self { version: VERSION, identity, staging, steps: steps.to_vec() }
    }
}

/// The right to commit on one directory, which one process has at a time.
#[derive(Debug)]
pub struct CommitLock {
    journal: PathBuf,
    _lock: Flock<File>,
}

impl CommitLock {
    /// Waits until no other process commits on `directory`.
    pub fn take(directory: &TriedDirectory) -> Result<Self, SetupFailure> {
        let state = StateDirectory::open().map_err(failed("state directory"))?;
        let commits = state.path().join(COMMITS);
        match DirBuilder::new().mode(0o700).create(&commits) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("state directory")(error));
            }
            _ => {}
        }
        let digest = Sha256::digest(directory.path().as_os_str().as_bytes());
        let key: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let path = commits.join(format!("{key}.lock"));
        let deadline = Deadline::after(LOCK_WAIT);
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(libc::O_NOFOLLOW).open(&path);
            match Flock::lock(
                file.map_err(failed("lock commits"))?,
                FlockArg::LockExclusiveNonblock,
            ) {
                Ok(lock) => {
                    return Ok(Self { journal: commits.join(format!("{key}.json")), _lock: lock });
                }
                Err((_, Errno::EWOULDBLOCK)) if deadline.remaining() > Duration::ZERO => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err((_, errno)) => {
                    return Err(SetupFailure::from_errno(
                        "lock commits on the directory",
                        errno as i32,
                    ));
                }
            }
        }
    }

    /// Writes the journal. If this process dies after that, the next commit finishes this one.
    pub fn write(&self, journal: &CommitJournal) -> Result<(), SetupFailure> {
        let new = self.journal.with_extension("new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&new)?;
            file.write_all(&serde_json::to_vec(journal)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.journal)
        };
        write().map_err(failed("write the journal"))
    }

    /// Removes the journal.
    pub fn forget(&self) -> Result<(), SetupFailure> {
        match fs::remove_file(&self.journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove the journal")(error))
            }
            _ => Ok(()),
        }
    }

    fn read(&self) -> Result<Option<CommitJournal>, SetupFailure> {
        let text = match File::open(&self.journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => {
                let mut text = Vec::new();
                let read = file.and_then(|file| {
                    io::Read::read_to_end(&mut io::Read::take(file, JOURNAL_BYTES_MAX), &mut text)
                });
                read.map_err(failed("read the journal"))?;
                text
            }
        };
        let parsed: Result<CommitJournal, _> = serde_json::from_slice(&text);
        let place = self.journal.display();
        match parsed {
            Ok(journal) if journal.version == VERSION => Ok(Some(journal)),
            _ => Err(SetupFailure::from_words(
                "read the journal",
                format!("{place} is not one; look at the directory, then remove it"),
            )),
        }
    }
}

/// Does what an interrupted commit left to do; returns what is to be said.
pub fn recover_locked(
    lock: &CommitLock,
    directory: &TriedDirectory,
) -> Result<Vec<String>, SetupFailure> {
    let mut said = Vec::new();
    let place = printed(directory.path().as_os_str().as_bytes());
    let errno = |errno: Errno| SetupFailure::from_errno("roll a commit forward", errno as i32);
    if let Some(journal) = lock.read()? {
        if journal.identity == directory.identity() {
            let staging = open_parent(directory.as_fd(), journal.staging.as_bytes()).ok();
            let staged = staging.as_ref().map(AsFd::as_fd);
            for path in apply(directory.as_fd(), staged, &journal.steps).map_err(errno)? {
                let path = printed(&path);
                said.push(format!(
                    "{place}: {path} was changed after the interrupted commit; it stays"
                ));
            }
            said.push(format!("{place}: an interrupted commit was rolled forward"));
        } else {
            said.push(format!("{place}: another directory; an interrupted commit is forgotten"));
        }
    }
    let names = names_in(directory.as_fd(), StopCheck::never()).map_err(errno)?;
    let left: Vec<_> = names.into_iter().filter(|name| is_staging(name)).collect();
    for name in &left {
        let removed = remove_tree(directory.as_fd(), OsStr::from_bytes(name));
        removed
            .map(drop)
            .map_err(|error| SetupFailure::from_words("remove leftovers", error.to_string()))?;
        said.push(format!(
            "{place}: leftovers of an interrupted commit were removed: {}",
            printed(name)
        ));
    }
    lock.forget()?;
    Ok(said)
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> SetupFailure {
    move |error| SetupFailure::from_io(step, &error)
}
