//! Copies a directory, as the lower directory of layers, so that every user may write to the copy.
//!
//! If the file system of a directory cannot map ids, as the overlay of an image cannot, its files
//! belong to another user in every sandbox. The modes of a copy can be opened to all: sandboxes reach
//! it only below a layer, and all writes go into the layer.

use std::fs::{self, DirBuilder, File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::Mode;

/// The most bytes of all files of a copy.
const BYTES_MAX: u64 = 2 << 30;
/// The most entries of a copy.
const ENTRIES_MAX: usize = 200_000;

/// Creates `target` as a copy of `source`: directories, files with their times, and links as they
/// are.
pub fn copy_for_everybody(source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let owner = File::from(source.try_clone_to_owned()?).metadata()?.uid();
    let mut copy = LayerCopy { source, target, owner, bytes: 0, entries: 0, unread: Vec::new() };
    copy.make_directory(PathBuf::new())?;
    while let Some(directory) = copy.unread.pop() {
        copy.read(&directory)?;
    }
    Ok(())
}

struct LayerCopy<'a> {
    source: BorrowedFd<'a>,
    target: &'a Path,
    /// The owner of `source`: files of this user, and files that others may read, are copied.
    owner: u32,
    bytes: u64,
    entries: usize,
    /// Directories that are created but not filled, relative to both.
    unread: Vec<PathBuf>,
}

impl LayerCopy<'_> {
    fn read(&mut self, directory: &Path) -> io::Result<()> {
        let fd = self.open(directory, OFlag::O_DIRECTORY)?;
        if !self.is_readable(&fd.metadata()?, 0o005) {
            return fs::set_permissions(self.target_of(directory), Permissions::from_mode(0o700));
        }
        let mut listed = Dir::from_fd(fd.into())?;
        for entry in listed.iter() {
            let entry = entry?;
            let name = Path::new(std::ffi::OsStr::from_bytes(entry.file_name().to_bytes()));
            if [Path::new("."), Path::new("..")].contains(&name) {
                continue;
            }
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(io::Error::other(format!("more than {ENTRIES_MAX} entries")));
            }
            let path = directory.join(name);
            match entry.file_type() {
                Some(Type::Directory) => self.make_directory(path)?,
                Some(Type::File) => self.copy_file(&path)?,
                Some(Type::Symlink) => self.copy_link(directory, name)?,
                // Sockets and devices are left out: no build stores anything in them.
                _ => {}
            }
        }
        Ok(())
    }

    fn make_directory(&mut self, path: PathBuf) -> io::Result<()> {
        let made = self.target_of(&path);
        DirBuilder::new().mode(0o700).create(&made)?;
        fs::set_permissions(&made, Permissions::from_mode(0o777))?;
        self.unread.push(path);
        Ok(())
    }

    fn copy_file(&mut self, path: &Path) -> io::Result<()> {
        let from = self.open(path, OFlag::O_NONBLOCK)?;
        let metadata = from.metadata()?;
        if !self.is_readable(&metadata, 0o004) {
            return Ok(());
        }
        let mut options = File::options();
        let mut to = options.write(true).create_new(true).mode(0o600).open(self.target_of(path))?;
        let left = BYTES_MAX.saturating_sub(self.bytes).saturating_add(1);
        self.bytes += io::copy(&mut io::Read::take(&from, left), &mut to)?;
        if self.bytes > BYTES_MAX {
            return Err(io::Error::other(format!("more than {BYTES_MAX} bytes")));
        }
        to.set_times(FileTimes::new().set_modified(metadata.modified()?))?;
        let may_run = metadata.permissions().mode() & 0o111 != 0;
        to.set_permissions(Permissions::from_mode(if may_run { 0o777 } else { 0o666 }))
    }

    fn copy_link(&self, directory: &Path, name: &Path) -> io::Result<()> {
        let parent = self.open(directory, OFlag::O_DIRECTORY)?;
        symlink(readlinkat(&parent, name)?, self.target_of(&directory.join(name)))
    }

    fn is_readable(&self, metadata: &Metadata, bits: u32) -> bool {
        metadata.uid() == self.owner || metadata.permissions().mode() & bits == bits
    }

    /// Opens `path` below the source without following links.
    fn open(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_RDONLY | OFlag::O_CLOEXEC)
            .mode(Mode::empty())
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(File::from(openat2(self.source.as_fd(), path, how)?))
    }

    fn target_of(&self, path: &Path) -> PathBuf {
        // Joined with an empty path it would end in a slash.
        if path.as_os_str().is_empty() { self.target.to_owned() } else { self.target.join(path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_writable_by_all_and_keeps_the_times() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("source"), directory.path().join("target"));
        fs::create_dir_all(source.join("deep/er")).unwrap();
        fs::write(source.join("deep/er/file"), "text").unwrap();
        fs::write(source.join("run"), "").unwrap();
        fs::set_permissions(source.join("run"), Permissions::from_mode(0o700)).unwrap();
        symlink("/etc/passwd", source.join("link")).unwrap();
        let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
        let file = File::options().write(true).open(source.join("deep/er/file")).unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();

        copy_for_everybody(File::open(&source).unwrap().as_fd(), &target).unwrap();
        let mode = |path: &str| target.join(path).symlink_metadata().unwrap().mode() & 0o7777;
        assert_eq!([mode(""), mode("deep"), mode("deep/er")], [0o777; 3]);
        assert_eq!([mode("deep/er/file"), mode("run")], [0o666, 0o777]);
        assert_eq!(fs::read_to_string(target.join("deep/er/file")).unwrap(), "text");
        assert_eq!(target.join("deep/er/file").metadata().unwrap().modified().unwrap(), old);
        assert_eq!(fs::read_link(target.join("link")).unwrap(), Path::new("/etc/passwd"));
    }
}
