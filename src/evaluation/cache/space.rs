//! The directory of all caches, and how full it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::eviction::evict;

/// A cache of evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Tasks as they were downloaded.
    Archives,
    /// Repositories as they were fetched.
    Mirrors,
    /// Repositories with what is installed for them, and what is installed for agents.
    Bases,
}

impl CacheKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Archives, Self::Mirrors, Self::Bases];

    /// Its word, as a label and as the name of its directory.
    pub fn word(self) -> &'static str {
        match self {
            Self::Archives => "archives",
            Self::Mirrors => "mirrors",
            Self::Bases => "bases",
        }
    }
}

/// Whether the entry at a path is in use, so that it has to stay.
type InUse = Box<dyn Fn(&Path) -> bool + Send + Sync>;

/// The directory with a directory for each cache, all of them within one limit.
pub struct CacheSpace {
    directory: PathBuf,
    bytes_max: u64,
    outlives_process: bool,
    in_use: Mutex<Vec<InUse>>,
    /// Bytes of each of [`CacheKind::ALL`] when they were counted last.
    bytes: Mutex<Vec<u64>>,
}

impl CacheSpace {
    /// Caches in `directory`, of at most `bytes_max` bytes together, that later processes use too.
    pub fn lasting(directory: PathBuf, bytes_max: u64) -> Self {
        let space = Self::of_process(directory, bytes_max);
        let space = Self { outlives_process: true, ..space };
        // An earlier process may have had a higher limit.
        space.make_room(Path::new(""));
        space
    }

    /// Caches in `directory`, which is removed with the process.
    pub fn of_process(directory: PathBuf, bytes_max: u64) -> Self {
        let bytes = Mutex::new(vec![0; CacheKind::ALL.len()]);
        let in_use = Mutex::default();
        Self { directory, bytes_max, outlives_process: false, in_use, bytes }
    }

    /// The directory of one cache, which is made with the first entry.
    pub fn directory(&self, kind: CacheKind) -> PathBuf {
        self.directory.join(kind.word())
    }

    /// The most bytes of all entries.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether later processes use the entries too.
    pub fn outlives_process(&self) -> bool {
        self.outlives_process
    }

    /// Entries for which `in_use` holds stay, whatever they take.
    pub fn protect(&self, in_use: impl Fn(&Path) -> bool + Send + Sync + 'static) {
        let mut all = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Box::new(in_use));
    }

    /// Removes the entries that were not used for the longest time, but `newest`, until all caches together
    /// are within the limit.
    pub fn make_room(&self, newest: &Path) {
        let caches = CacheKind::ALL.map(|kind| self.directory(kind));
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |path: &Path| path == newest || in_use.iter().any(|holds| holds(path));
        match evict(&caches, self.bytes_max, stays) {
            Ok(left) => *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = left,
            Err(error) => log::warn!("{}: {error}", self.directory.display()),
        }
    }

    /// Bytes of each cache, as they were when an entry was made last.
    pub fn bytes(&self) -> Vec<(CacheKind, u64)> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        CacheKind::ALL.into_iter().zip(bytes.iter().copied()).collect()
    }
}

impl fmt::Debug for CacheSpace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, bytes_max, .. } = self;
        let mut out = out.debug_struct("CacheSpace");
        out.field("directory", directory).field("bytes_max", bytes_max).finish_non_exhaustive()
    }
}
