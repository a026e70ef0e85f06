//! Writes a tree as a tar archive. The same tree gives the same bytes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, fstat};

use super::header::{BLOCK_BYTES, TarHeader, fits};
use crate::copy::copy_file::BUFFER_BYTES;
use crate::error::WorkspaceFault;
use crate::files::error::{FilesError, OnPath};
use crate::files::location::FileLocation;
use crate::files::read::size;
use crate::files::resolve::{WorkspaceRoot, link_text};
use crate::status;
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::open_beneath;
use crate::walk::ordered::{OrderedRange, OrderedWalk};
use crate::walk::stop_check::StopCheck;

/// The name of the entries before one with a long name, as in GNU's archives.
const LONG_NAME: &[u8] = b"././@LongLink";

/// Writes the tree at `location` to `output`: the contents of a directory with paths relative to it, or one file.
/// Files, directories and links have their permissions and times, without set-id bits and owners; links in the tree
/// are written as links; fifos, sockets and devices are left out. Files that disappear meanwhile are left out, and
/// one that shrinks is filled with zeros.
///
/// # Errors
/// Those of finding the tree come before the first byte; [`FilesError::TooLarge`], [`FilesError::Stopped`],
/// [`FilesError::Output`] if `output` fails.
pub fn pack(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    limits: &TreeLimits,
    stop: StopCheck<'_>,
    output: &mut dyn Write,
) -> Result<(), FilesError> {
    let found = root.find(location, true)?;
    let path = location.shown();
    let budget = TreeBudget::new(*limits);
    let mut pack = Pack { output, budget, buffer: vec![0; BUFFER_BYTES], stop };
    match found.file_type() {
        SFlag::S_IFDIR => pack.tree(&found.file, limits.entries_max, &path)?,
        SFlag::S_IFREG => {
            let name = location.name().unwrap_or(OsStr::new("file"));
            pack.found(name.as_bytes(), &found.file, &found.stat, &path)?;
        }
        _ => return Err(FilesError::not_regular(&path)),
    }
    pack.bytes(&[0; 2 * BLOCK_BYTES])
}

struct Pack<'call> {
    output: &'call mut dyn Write,
    budget: TreeBudget,
    buffer: Vec<u8>,
    stop: StopCheck<'call>,
}

impl Pack<'_> {
    fn tree(&mut self, top: &OwnedFd, entries_max: u64, path: &Path) -> Result<(), FilesError> {
        let range = OrderedRange {
            depth_max: usize::MAX,
            entries_max: usize::try_from(entries_max).unwrap_or(usize::MAX).saturating_add(1),
            after: Vec::new(),
        };
        let mut walk = OrderedWalk::over(top.as_fd(), range).on("list", path)?;
        while let Some(entry) = walk.advance().on("list", path)? {
            let name = walk.path_of(&entry.name);
            let shown = path.join(OsStr::from_bytes(&name));
            let counted = self.budget.take_entry(walk.path().depth());
            counted.map_err(WorkspaceFault::from).on("list", &shown)?;
            let found = match open_beneath::open_path(walk.directory(), entry.name.as_c_str()) {
                // It has disappeared.
                Err(Errno::ENOENT) => continue,
                found => found.on("open", &shown)?,
            };
            let stat = fstat(&found).on("stat", &shown)?;
            self.found(&name, &found, &stat, &shown)?;
        }
        Ok(())
    }

    /// Writes one entry.
    fn found(
        &mut self,
        name: &[u8],
        found: &OwnedFd,
        stat: &FileStat,
        path: &Path,
    ) -> Result<(), FilesError> {
        self.stop.check().on("read", path)?;
        let mut header = TarHeader {
            kind: b'0',
            path: name.to_vec(),
            link: Vec::new(),
            mode: stat.st_mode & 0o777,
            size: 0,
            modified: u64::try_from(stat.st_mtime).unwrap_or(0),
        };
        match status::file_type(stat) {
            SFlag::S_IFREG => {
                let file = open_beneath::reopen_for_reading(found.as_fd()).on("open", path)?;
                header.size = size(stat);
                self.header(&header)?;
                return self.contents(File::from(file), header.size, path);
            }
            SFlag::S_IFDIR => {
                header.kind = b'5';
                header.path.push(b'/');
            }
            SFlag::S_IFLNK => {
                header.kind = b'2';
                header.link = link_text(found.as_fd()).on("readlink", path)?.into_vec();
            }
            _ => return Ok(()),
        }
        self.header(&header)
    }

    fn header(&mut self, header: &TarHeader) -> Result<(), FilesError> {
        for (kind, text) in [(b'K', &header.link), (b'L', &header.path)] {
            if fits(text) {
                continue;
            }
            let mut contents = text.clone();
            contents.push(0);
            let size = contents.len() as u64;
            let long = TarHeader {
                kind,
                path: LONG_NAME.to_vec(),
                link: Vec::new(),
                mode: 0o644,
                size,
                modified: 0,
            };
            contents.resize(contents.len() + padding(size), 0);
            self.bytes(&long.encode())?;
            self.bytes(&contents)?;
        }
        self.bytes(&header.encode())
    }

    /// Writes exactly `size` bytes of `file`, and fills the last block.
    fn contents(&mut self, mut file: File, size: u64, path: &Path) -> Result<(), FilesError> {
        let mut left = size;
        let mut has_ended = false;
        while left > 0 {
            self.stop.check().on("read", path)?;
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let piece = self.buffer.get_mut(..wanted).unwrap_or_default();
            let count = if has_ended { 0 } else { file.read(piece).on("read", path)? };
            if count == 0 {
                has_ended = true;
                piece.fill(0);
            }
            let count = if count == 0 { wanted } else { count };
            self.budget.take_bytes(count as u64).map_err(WorkspaceFault::from).on("read", path)?;
            let piece = self.buffer.get(..count).unwrap_or_default();
            self.output.write_all(piece).map_err(FilesError::Output)?;
            left -= count as u64;
        }
        self.bytes(&[0; BLOCK_BYTES][..padding(size)])
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        self.output.write_all(bytes).map_err(FilesError::Output)
    }
}

/// The bytes to the end of the last block.
fn padding(size: u64) -> usize {
    let block = BLOCK_BYTES as u64;
    usize::try_from((block - size % block) % block).unwrap_or_default()
}
