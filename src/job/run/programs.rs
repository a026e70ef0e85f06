//! The programs that the policy judges: a backend finds them, this module hashes them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::executor::{Executor, FoundProgram};
use crate::policy::{ProgramFinder, ResolvedProgram};
use cofferdam_core::job::Sha256;
use cofferdam_core::values::digest::sha256_of_all;

/// How many digests are remembered.
const REMEMBERED_MAX: usize = 1024;
/// A file that changed more recently may change again without a new time.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Changes with the contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ProgramStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// Remembers digests of programs, so that a large runtime is not read for every job.
#[derive(Debug, Default)]
pub struct Digests(Mutex<BTreeMap<ProgramStamp, Sha256>>);

impl Digests {
    /// The digest of `file`.
    fn of(&self, file: &File) -> io::Result<Sha256> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamp, is_settled) = stamp(file)?;
        if let Some(digest) = known().get(&stamp) {
            return Ok(digest.clone());
        }
        let digest = digest_of(file)?;
        let mut known = known();
        if is_settled && self::stamp(file)?.0 == stamp {
            if known.len() >= REMEMBERED_MAX {
                known.pop_first();
            }
            known.insert(stamp, digest.clone());
        }
        Ok(digest)
    }
}

fn stamp(file: &File) -> io::Result<(ProgramStamp, bool)> {
    let metadata = file.metadata()?;
    let stamp = ProgramStamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    let changed = Duration::from_secs(u64::try_from(metadata.ctime()).unwrap_or(u64::MAX));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((stamp, changed.saturating_add(SETTLED_AFTER) < now))
}

/// Reads `file` and returns its digest.
pub fn digest_of(mut file: &File) -> io::Result<Sha256> {
    file.rewind()?;
    let digest = sha256_of_all(file)?;
    Sha256::parse(&digest).ok_or_else(|| io::Error::other("not a digest"))
}

/// The programs of one backend, each opened once: the file that was hashed is executed.
#[derive(Debug)]
pub struct OpenedPrograms<'a> {
    executor: &'a dyn Executor,
    digests: &'a Digests,
    opened: RefCell<BTreeMap<String, OwnedFd>>,
}

impl<'a> OpenedPrograms<'a> {
    /// The programs of `executor`.
    pub fn new(executor: &'a dyn Executor, digests: &'a Digests) -> Self {
        Self { executor, digests, opened: RefCell::default() }
    }

    /// Takes the file that [`ProgramFinder::find`] opened at `path`.
    pub fn take(&self, path: &str) -> Option<OwnedFd> {
        self.opened.borrow_mut().remove(path)
    }
}

impl ProgramFinder for OpenedPrograms<'_> {
    fn find(&self, name: &str) -> Result<Option<ResolvedProgram>, String> {
        let found = self.executor.find_program(name).map_err(|failure| failure.to_string())?;
        let Some(FoundProgram { path, target, file }) = found else { return Ok(None) };
        let file = File::from(file);
        let sha256 = self.digests.of(&file).map_err(|error| format!("read {target}: {error}"))?;
        self.opened.borrow_mut().insert(path.clone(), file.into());
        Ok(Some(ResolvedProgram { path, target, sha256 }))
    }
}
