//! Writes a directory tree to a stream, and unpacks a stream to an empty directory.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::NixPath;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, Whence, fchown, fchownat, lseek, symlinkat};
use std::os::unix::ffi::OsStrExt;

use super::archive::{
    ArchiveError, ArchiveReader, ArchiveRecord, ArchiveWriter, DATA_BYTES_MAX, Modified,
};
use cofferdam_tree::Owner;

/// The most nested directories: each stays open while its contents are processed.
pub const DEPTH_MAX: usize = 256;
/// The target of the link that replaces a guest's entry that is not a regular file. It leads nowhere.
const NOTHING: &CStr = c"not-a-regular-file";

/// The origin of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeOrigin {
    /// The host made it: all entries are transferred, for this owner, or the transfer fails.
    Ours(Owner),
    /// A program in a guest left it: regular files and directories are transferred, other entries
    /// with their name only.
    Theirs,
}

/// The limits of an unpacked stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Files, directories and other entries.
    pub entries_max: u64,
    /// Contents of all files together without holes, bytes.
    pub bytes_max: u64,
    /// The length of one file including holes, bytes.
    pub file_bytes_max: u64,
}

/// Why a tree was not transferred.
#[derive(Debug, thiserror::Error)]
pub enum TreeIoError {
    /// The stream is invalid.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A system call failed.
    #[error("{operation}: {errno:?}")]
    System {
        /// The system call.
        operation: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// A limit was exceeded.
    #[error("more {what} than {max}")]
    TooMuch {
        /// What the limit counts.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A link or a special file where none is allowed.
    #[error("an entry that is neither a regular file nor a directory")]
    Kind,
}

trait OperationContext<T> {
    fn during(self, operation: &'static str) -> Result<T, TreeIoError>;
}

impl<T> OperationContext<T> for Result<T, Errno> {
    fn during(self, operation: &'static str) -> Result<T, TreeIoError> {
        self.map_err(|errno| TreeIoError::System { operation, errno })
    }
}

impl<T> OperationContext<T> for std::io::Result<T> {
    fn during(self, operation: &'static str) -> Result<T, TreeIoError> {
        self.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
            .during(operation)
    }
}

/// A directory that is being written.
struct PackedDir {
    directory: OwnedFd,
    /// Its remaining names, the next one last.
    names: Vec<CString>,
}

/// Writes the contents of `root`, in the order of names.
pub fn pack<W: Write>(
    root: BorrowedFd<'_>,
    tree: TreeOrigin,
    writer: &mut ArchiveWriter<W>,
) -> Result<(), TreeIoError> {
    let root =
        openat(root, c".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    let mut levels = vec![PackedDir::open(root.during("open")?)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            if !levels.is_empty() {
                writer.write(&ArchiveRecord::Leave)?;
            }
            continue;
        };
        let depth = levels.len();
        let Some(level) = levels.last() else { break };
        if let Some(below) = pack_entry(&level.directory, name, depth, tree, writer)? {
            levels.push(below);
        }
    }
    Ok(writer.write(&ArchiveRecord::End)?)
}

impl PackedDir {
    fn open(directory: OwnedFd) -> Result<Self, TreeIoError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::openat(&directory, c".", flags, Mode::empty()).during("list")? {
            let entry = entry.during("list")?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { directory, names })
    }
}

/// Writes the entry `name`. Returns its contents if it is a directory.
fn pack_entry<W: Write>(
    directory: &OwnedFd,
    name: CString,
    depth: usize,
    tree: TreeOrigin,
    writer: &mut ArchiveWriter<W>,
) -> Result<Option<PackedDir>, TreeIoError> {
    let stat = fstatat(directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW).during("stat")?;
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    let (mode, modified) = attributes(&stat);
    if kind == SFlag::S_IFDIR && depth < DEPTH_MAX {
        let below = open_beneath(directory, &*name, OFlag::O_DIRECTORY);
        if let (Err(Errno::EXDEV), TreeOrigin::Theirs) = (&below, tree) {
            writer.write(&ArchiveRecord::Other { name: name.into_bytes() })?;
            return Ok(None);
        }
        let level = PackedDir::open(below.during("open")?)?;
        writer.write(&ArchiveRecord::Enter { name: name.into_bytes(), mode, modified })?;
        return Ok(Some(level));
    }
    match (kind, tree) {
        (SFlag::S_IFREG, _) => {
            let file = open_beneath(directory, &*name, OFlag::O_NONBLOCK).during("open")?;
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            writer.write(&ArchiveRecord::File {
                name: name.into_bytes(),
                mode,
                modified,
                bytes,
            })?;
            pack_contents(&File::from(file), bytes, writer)?;
        }
        (SFlag::S_IFLNK, TreeOrigin::Ours(_)) => {
            let target = readlinkat(directory, name.as_c_str()).during("readlink")?;
            let target = target.as_bytes().to_vec();
            writer.write(&ArchiveRecord::Link { name: name.into_bytes(), target })?;
        }
        (SFlag::S_IFDIR, TreeOrigin::Ours(_)) => {
            let max = u64::try_from(DEPTH_MAX).unwrap_or(u64::MAX);
            return Err(TreeIoError::TooMuch { what: "directories within each other", max });
        }
        (_, TreeOrigin::Ours(_)) => return Err(TreeIoError::Kind),
        (_, TreeOrigin::Theirs) => {
            writer.write(&ArchiveRecord::Other { name: name.into_bytes() })?;
        }
    }
    Ok(None)
}

/// Writes the first `bytes` of `file` without holes.
fn pack_contents<W: Write>(
    file: &File,
    bytes: u64,
    writer: &mut ArchiveWriter<W>,
) -> Result<(), TreeIoError> {
    let mut at = 0;
    while at < bytes {
        let offset = i64::try_from(at).unwrap_or(i64::MAX);
        let begin = match lseek(file, offset, Whence::SeekData) {
            Ok(begin) => u64::try_from(begin).unwrap_or(bytes),
            // Only a hole remains.
            Err(Errno::ENXIO) => break,
            Err(Errno::EINVAL) => at,
            Err(errno) => return Err(errno).during("seek"),
        };
        let end = lseek(file, i64::try_from(begin).unwrap_or(i64::MAX), Whence::SeekHole);
        let end = end.ok().and_then(|end| u64::try_from(end).ok()).unwrap_or(bytes).min(bytes);
        at = begin;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(DATA_BYTES_MAX).min(DATA_BYTES_MAX);
            let mut contents = vec![0; wanted];
            let count = file.read_at(&mut contents, at).during("read")?;
            if count == 0 {
                return Err(Errno::EIO).during("read");
            }
            contents.truncate(count);
            writer.write(&ArchiveRecord::Data { offset: at, contents })?;
            at += u64::try_from(count).unwrap_or(u64::MAX);
        }
    }
    Ok(())
}

fn attributes(stat: &FileStat) -> (u16, Modified) {
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let mode = u16::try_from(stat.st_mode & 0o777).unwrap_or(0);
    (mode, Modified { seconds: stat.st_mtime, nanoseconds })
}

/// Unpacks a stream to the empty directory `root`, which must not be accessible to others.
pub fn unpack<R: Read>(
    reader: &mut ArchiveReader<R>,
    root: BorrowedFd<'_>,
    tree: TreeOrigin,
    bounds: UnpackLimits,
) -> Result<(), TreeIoError> {
    let root = root.try_clone_to_owned().during("dup")?;
    let mut unpacking =
        Unpacking { tree, bounds, entries: 0, bytes: 0, levels: vec![(root, None)], file: None };
    loop {
        let record = reader.read()?;
        if record == ArchiveRecord::End {
            return unpacking.end_file();
        }
        unpacking.take(record)?;
    }
}

/// The attributes that are set when a file or a directory is finished.
type FileAttributes = (u16, Modified);

struct Unpacking {
    tree: TreeOrigin,
    bounds: UnpackLimits,
    entries: u64,
    bytes: u64,
    /// The current directories, each with the attributes that it gets when it is left.
    levels: Vec<(OwnedFd, Option<FileAttributes>)>,
    file: Option<(File, FileAttributes)>,
}

impl Unpacking {
    fn take(&mut self, record: ArchiveRecord) -> Result<(), TreeIoError> {
        if !matches!(record, ArchiveRecord::Data { .. }) {
            self.end_file()?;
        }
        match record {
            ArchiveRecord::Enter { name, mode, modified } => self.enter(&name, (mode, modified)),
            ArchiveRecord::Leave => self.leave(),
            ArchiveRecord::File { name, mode, modified, bytes } => {
                self.begin_file(&name, (mode, modified), bytes)
            }
            ArchiveRecord::Data { offset, contents } => self.put(offset, &contents),
            ArchiveRecord::Link { name, target } => self.link(&name, &target),
            ArchiveRecord::Other { name } if self.tree == TreeOrigin::Theirs => {
                self.count()?;
                symlinkat(NOTHING, self.here()?, name.as_slice()).during("symlink")
            }
            ArchiveRecord::Other { .. } => Err(TreeIoError::Kind),
            ArchiveRecord::End => Ok(()),
        }
    }

    fn here(&self) -> Result<BorrowedFd<'_>, TreeIoError> {
        let last = self.levels.last().map(|(directory, _)| directory.as_fd());
        last.ok_or(TreeIoError::Archive(ArchiveError::Malformed(
            "a directory left but not entered",
        )))
    }

    fn count(&mut self) -> Result<(), TreeIoError> {
        self.entries += 1;
        let max = self.bounds.entries_max;
        if self.entries > max { Err(TreeIoError::TooMuch { what: "entries", max }) } else { Ok(()) }
    }

    fn enter(&mut self, name: &[u8], attributes: FileAttributes) -> Result<(), TreeIoError> {
        self.count()?;
        if self.levels.len() > DEPTH_MAX {
            let max = u64::try_from(DEPTH_MAX).unwrap_or(u64::MAX);
            return Err(TreeIoError::TooMuch { what: "directories within each other", max });
        }
        let here = self.here()?;
        mkdirat(here, name, Mode::S_IRWXU).during("mkdir")?;
        let below = open_beneath(here, name, OFlag::O_DIRECTORY).during("open")?;
        self.levels.push((below, Some(attributes)));
        Ok(())
    }

    fn leave(&mut self) -> Result<(), TreeIoError> {
        if let Some((directory, Some(attributes))) = self.levels.pop() {
            self.settle(&directory, attributes)?;
        }
        Ok(())
    }

    fn begin_file(
        &mut self,
        name: &[u8],
        attributes: FileAttributes,
        bytes: u64,
    ) -> Result<(), TreeIoError> {
        self.count()?;
        let max = self.bounds.file_bytes_max;
        if bytes > max {
            return Err(TreeIoError::TooMuch { what: "bytes in one file", max });
        }
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(self.here()?, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let file = File::from(file.during("create")?);
        file.set_len(bytes).during("ftruncate")?;
        self.file = Some((file, attributes));
        Ok(())
    }

    fn put(&mut self, offset: u64, contents: &[u8]) -> Result<(), TreeIoError> {
        let max = self.bounds.bytes_max;
        self.bytes = self.bytes.saturating_add(u64::try_from(contents.len()).unwrap_or(u64::MAX));
        if self.bytes > max {
            return Err(TreeIoError::TooMuch { what: "bytes", max });
        }
        match &self.file {
            Some((file, _)) => file.write_all_at(contents, offset).during("write"),
            None => Err(ArchiveError::Malformed("contents of no file").into()),
        }
    }

    fn end_file(&mut self) -> Result<(), TreeIoError> {
        match self.file.take() {
            Some((file, attributes)) => self.settle(&file, attributes),
            None => Ok(()),
        }
    }

    fn link(&mut self, name: &[u8], target: &[u8]) -> Result<(), TreeIoError> {
        let TreeOrigin::Ours(Owner { uid, gid }) = self.tree else { return Err(TreeIoError::Kind) };
        self.count()?;
        let here = self.here()?;
        symlinkat(target, here, name).during("symlink")?;
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        fchownat(here, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).during("chown")
    }

    /// Sets owner and attributes. Of a guest's tree only names and contents are used.
    fn settle(&self, made: impl AsFd, (mode, modified): FileAttributes) -> Result<(), TreeIoError> {
        let TreeOrigin::Ours(Owner { uid, gid }) = self.tree else { return Ok(()) };
        fchown(&made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).during("chown")?;
        fchmod(&made, Mode::from_bits_truncate(mode.into())).during("chmod")?;
        let time = TimeSpec::new(modified.seconds, modified.nanoseconds.into());
        futimens(&made, &time, &time).during("utimens")
    }
}

fn open_beneath<P: NixPath + ?Sized>(
    directory: impl AsFd,
    name: &P,
    flags: OFlag,
) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | flags)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    openat2(directory, name, how)
}
