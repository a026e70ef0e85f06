//! Entries of frozen trees, opened beneath their roots without following a link.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstatat};

use cofferdam_tree::StopCheck;

/// Bytes that are compared at a time.
const PIECE_BYTES: usize = 64 << 10;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryForm {
    /// A directory.
    Directory,
    /// What a patch can have.
    File(FileForm),
    /// The mark of overlayfs that an entry of a lower layer was removed.
    Removed,
    /// What a patch cannot have, in a word.
    Special(&'static str),
}

/// What a patch can have at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    /// A file with mode 644.
    Plain,
    /// A file with mode 755.
    Executable,
    /// A symbolic link.
    Link,
}

impl FileForm {
    /// The mode in git's objects.
    pub fn git_mode(self) -> &'static str {
        match self {
            Self::Plain => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

/// Opens `path` beneath `root`; the empty path is the root itself.
///
/// # Errors
/// As openat2; `ELOOP` if a link is in the way.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlag) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(root, OsStr::from_bytes(path), how)
}

/// Opens the directory `path` beneath `root`.
///
/// # Errors
/// The entry does not exist.
pub fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath(root, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// What is called `name` in `directory`; `None` if there is nothing.
///
/// # Errors
/// As fstatat.
pub fn form_of(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<EntryForm>, Errno> {
    match fstatat(directory, OsStr::from_bytes(name), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(Some(form(&status))),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn form(status: &FileStat) -> EntryForm {
    const TYPE_BITS: u32 = 0o170_000;
    const ANY_EXECUTE: u32 = 0o111;
    match SFlag::from_bits_truncate(status.st_mode & TYPE_BITS) {
        SFlag::S_IFDIR => EntryForm::Directory,
        SFlag::S_IFLNK => EntryForm::File(FileForm::Link),
        SFlag::S_IFREG if status.st_mode & ANY_EXECUTE != 0 => {
            EntryForm::File(FileForm::Executable)
        }
        SFlag::S_IFREG => EntryForm::File(FileForm::Plain),
        SFlag::S_IFCHR if status.st_rdev == 0 => EntryForm::Removed,
        SFlag::S_IFIFO => EntryForm::Special("fifo"),
        SFlag::S_IFSOCK => EntryForm::Special("socket"),
        _ => EntryForm::Special("device"),
    }
}

/// The names in `directory`, sorted.
///
/// # Errors
/// It cannot be read, or `stop` ended it: `ECANCELED`.
pub fn names_in(
    directory: BorrowedFd<'_>,
    stop: StopCheck<'_>,
) -> Result<BTreeSet<Vec<u8>>, Errno> {
    let own = open_directory(directory, b"")?;
    let mut names = BTreeSet::new();
    for entry in Dir::from_fd(own)?.iter() {
        let name = entry?.file_name().to_bytes().to_vec();
        if stop.is_set() {
            return Err(Errno::ECANCELED);
        }
        if name != b"." && name != b".." {
            names.insert(name);
        }
    }
    Ok(names)
}

/// The text of the link `name` in `directory`.
///
/// # Errors
/// As readlinkat.
pub fn link_text(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    readlinkat(directory, OsStr::from_bytes(name)).map(OsStringExt::into_vec)
}

/// Opens the regular file `name` in `directory`.
///
/// # Errors
/// As openat2.
pub fn open_file(directory: BorrowedFd<'_>, name: &[u8]) -> Result<File, Errno> {
    open_beneath(directory, name, OFlag::O_RDONLY | OFlag::O_NONBLOCK).map(File::from)
}

/// The contents of the file `path` beneath `root`, if there is one of at most `bytes_max` bytes.
pub fn read_beneath(root: BorrowedFd<'_>, path: &[u8], bytes_max: u64) -> Option<Vec<u8>> {
    let (parent, name) = split(path);
    let directory = open_directory(root, parent).ok()?;
    let EntryForm::File(FileForm::Plain | FileForm::Executable) =
        form_of(directory.as_fd(), name).ok()??
    else {
        return None;
    };
    let mut bytes = Vec::new();
    let file = open_file(directory.as_fd(), name).ok()?;
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= bytes_max).then_some(bytes)
}

/// Whether two files have the same contents.
///
/// # Errors
/// One cannot be read, or `stop` ended it.
pub fn are_equal(mut left: File, mut right: File, stop: StopCheck<'_>) -> std::io::Result<bool> {
    if left.metadata()?.len() != right.metadata()?.len() {
        return Ok(false);
    }
    let (mut of_left, mut of_right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        stop.check_io()?;
        let count = left.read(&mut of_left)?;
        if count == 0 {
            return Ok(true);
        }
        let (piece, other) = (&of_left[..count], &mut of_right[..count]);
        match right.read_exact(other) {
            Ok(()) if piece == other => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// The directory and the last name of a path.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// `name` in the directory `path`.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// The paths above `path`, the nearest first, without the root.
pub fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = split(rest).0;
        (!rest.is_empty()).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_and_put_together() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"c"), (&b""[..], &b"c"[..]));
        assert_eq!((join(b"", b"c"), join(b"a", b"c")), (b"c".to_vec(), b"a/c".to_vec()));
        assert_eq!(ancestors(b"a/b/c").collect::<Vec<_>>(), [&b"a/b"[..], b"a"]);
        assert_eq!(ancestors(b"c").count(), 0);
    }
}
