//! The digest of a tree, as it is seen.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use sha2::{Digest, Sha256};

use crate::copy::copy_file::BUFFER_BYTES;
use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::status;
use crate::walk::open_beneath;
use crate::walk::stop_check::StopCheck;
use crate::walk::{TreeWalk, WalkEvent, as_path};

/// Names this form of a digest; another form gets another number.
const FORM: &[u8] = b"cofferdam tree 1\0";

/// What a tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeDigest {
    /// The SHA-256 over paths, kinds, modes, contents and the texts of links.
    pub sha256: [u8; 32],
    /// Regular files.
    pub files: u64,
    /// Bytes of regular files, holes included.
    pub bytes: u64,
}

impl TreeDigest {
    /// The digest as 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Digests everything below `root`. Owners, times and extended attributes do not count.
pub fn digest_tree(
    root: BorrowedFd<'_>,
    stop: StopCheck<'_>,
) -> Result<TreeDigest, WorkspaceError> {
    let walk = TreeWalk::to_choose(root, u64::MAX).during("list");
    let mut walk = walk.map_err(|fault| fault.at("."))?;
    let mut digest =
        Digester { hash: Sha256::new(), stop, files: 0, bytes: 0, buffer: vec![0; BUFFER_BYTES] };
    digest.hash.update(FORM);
    while let Some(event) = walk.advance()? {
        let name = match &event {
            WalkEvent::Enter { name, .. }
            | WalkEvent::Leave { name }
            | WalkEvent::Entry { name, .. }
            | WalkEvent::Unopened { name, .. } => name.clone(),
        };
        let taken = digest.take(walk.directory(), &event);
        taken.map_err(|fault| fault.at(walk.path().join(as_path(&name))))?;
    }
    let Digester { hash, files, bytes, .. } = digest;
    Ok(TreeDigest { sha256: hash.finalize().into(), files, bytes })
}

struct Digester<'calls> {
    hash: Sha256,
    stop: StopCheck<'calls>,
    files: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Digester<'_> {
    /// Each entry begins with its kind and name, and each directory ends with a mark, so that no two
    /// trees give the same bytes.
    fn take(&mut self, parent: BorrowedFd<'_>, event: &WalkEvent) -> Result<(), WorkspaceFault> {
        self.stop.check()?;
        match event {
            WalkEvent::Enter { name, stat } => self.head(b"d", name, stat),
            WalkEvent::Leave { .. } => self.hash.update(b"."),
            WalkEvent::Unopened { errno, .. } => return Err(*errno).during("open"),
            WalkEvent::Entry { name, .. } => {
                let stat = fstatat(parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                let stat = stat.during("stat")?;
                match status::file_type(&stat) {
                    SFlag::S_IFREG => {
                        self.head(b"f", name, &stat);
                        self.contents(parent, name)?;
                    }
                    SFlag::S_IFLNK => {
                        self.head(b"l", name, &stat);
                        let text = readlinkat(parent, name.as_c_str()).during("readlink")?;
                        self.hash.update(text.as_bytes());
                        self.hash.update([0]);
                    }
                    SFlag::S_IFIFO => self.head(b"p", name, &stat),
                    SFlag::S_IFSOCK => self.head(b"s", name, &stat),
                    SFlag::S_IFBLK => self.head(b"b", name, &stat),
                    _ => self.head(b"c", name, &stat),
                }
            }
        }
        Ok(())
    }

    fn head(&mut self, kind: &[u8], name: &CStr, stat: &FileStat) {
        self.hash.update(kind);
        self.hash.update(name.to_bytes_with_nul());
        self.hash.update((stat.st_mode & 0o7777).to_be_bytes());
    }

    fn contents(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let file = open_beneath::open_for_reading_quietly(parent, name).during("open")?;
        let length = fstat(&file).during("stat")?.st_size;
        let length = u64::try_from(length).unwrap_or(0);
        self.hash.update(length.to_be_bytes());
        let file = File::from(file);
        let mut at = 0;
        while at < length {
            self.stop.check()?;
            let wanted = usize::try_from(length - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            file.read_exact_at(&mut self.buffer[..wanted], at).during("read")?;
            self.hash.update(&self.buffer[..wanted]);
            at += wanted as u64;
        }
        self.files += 1;
        self.bytes += length;
        Ok(())
    }
}
