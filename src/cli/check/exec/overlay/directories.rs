//! The directories that a command is tried on.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::{Failure, error_words};

/// The most directories of one run.
const DIRECTORIES_MAX: usize = 16;

/// One directory of the host, held open.
#[derive(Debug)]
pub struct TriedDirectory {
    path: PathBuf,
    file: OwnedFd,
    device: u64,
    inode: u64,
    owner: (u32, u32),
}

impl TriedDirectory {
    fn open(given: &Path) -> io::Result<Self> {
        let path = given.canonicalize()?;
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        if !metadata.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let owner = (metadata.uid(), metadata.gid());
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self { path, file: file.into(), device, inode, owner })
    }

    /// Its absolute path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// The uid and gid of its owner.
    pub fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// The path `below` it as it is printed: absolute if there are `several` directories.
    pub fn shown(&self, below: &[u8], several: bool) -> Vec<u8> {
        if several {
            [self.path.as_os_str().as_bytes(), b"/", below].concat()
        } else {
            below.to_vec()
        }
    }
}

/// Opens the directories `given`, none of which lies in another.
pub fn open_all(given: &[PathBuf]) -> Result<Vec<TriedDirectory>, Failure> {
    if given.len() > DIRECTORIES_MAX {
        let words = format!("{}; want at most {DIRECTORIES_MAX}", given.len());
        return Err(Failure::option("--overlay", words));
    }
    let mut opened: Vec<TriedDirectory> = Vec::new();
    for path in given {
        let fault =
            |words: &str| Failure::option("--overlay", format!("{}: {words}", path.display()));
        let directory = TriedDirectory::open(path).map_err(|error| fault(&error_words(&error)))?;
        if directory.path == Path::new("/") {
            return Err(fault("want a directory below the root"));
        }
        let overlaps = |other: &TriedDirectory| {
            other.path.starts_with(&directory.path) || directory.path.starts_with(&other.path)
        };
        if opened.iter().any(overlaps) {
            return Err(fault("lies in another one, or is given twice"));
        }
        opened.push(directory);
    }
    Ok(opened)
}
