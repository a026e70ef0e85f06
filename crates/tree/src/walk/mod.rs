//! The walk over a directory tree: a loop, in name order, that follows no links and enters no mounts.

pub(crate) mod budget;
pub(crate) mod dir_stack;
pub(crate) mod open_beneath;
pub(crate) mod open_scoped;
pub(crate) mod ordered;
pub(crate) mod path_stack;
pub(crate) mod prefix_filter;
pub(crate) mod stop_check;

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat};

use super::error::{WorkspaceError, WorkspaceFault};
use super::status;
use crate::walk::dir_stack::DirStack;
use cofferdam_core::values::owner::Owner;

/// The most bytes of a path in an error: deep trees have paths of megabytes.
const PATH_SHOWN_BYTES_MAX: usize = 1024;
/// The most names that a removing walk holds at once. The next walk takes the others.
const NAMES_HELD_MAX: usize = 65_536;
/// Never part of a workspace, at any depth, as a directory or a file.
const GIT: &CStr = c".git";

/// The type of an entry that is not a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Regular,
    Symlink,
    /// A fifo, a socket or a device.
    Special,
}

/// One step of a walk.
#[derive(Debug)]
pub(super) enum WalkEvent {
    /// A directory; [`TreeWalk::directory`] is now this one. [`TreeWalk::pass_over`] skips its contents.
    Enter { name: CString, stat: FileStat },
    /// The same directory after its contents; [`TreeWalk::directory`] is its parent again.
    Leave { name: CString },
    /// Any other entry, in [`TreeWalk::directory`].
    Entry { name: CString, kind: FileKind },
    /// An entry of [`TreeWalk::directory`] that could not be opened; `EXDEV` for a mount.
    Unopened { name: CString, errno: Errno },
}

impl WalkEvent {
    /// The name of the entry.
    pub(super) fn name(&self) -> &CStr {
        match self {
            Self::Enter { name, .. }
            | Self::Leave { name }
            | Self::Entry { name, .. }
            | Self::Unopened { name, .. } => name,
        }
    }
}

/// The purpose of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Reading a workspace without `.git`.
    Read,
    /// Reading the directories that the caller selects. No directory is listed before the caller can
    /// skip it.
    Choose,
    /// Removing everything. Directories that the owner cannot read are made readable.
    Remove,
}

#[derive(Debug)]
enum WalkTask {
    Visit {
        name: CString,
        kind: Option<Type>,
    },
    /// The contents of the directory just entered, not listed yet. Always on top of the stack.
    Contents(Dir),
    Leave {
        name: CString,
    },
}

impl WalkTask {
    fn name(&self) -> &CStr {
        match self {
            Self::Visit { name, .. } | Self::Leave { name } => name,
            Self::Contents(_) => c"",
        }
    }
}

/// A walk in progress. Its memory is proportional to the names not yet visited.
#[derive(Debug)]
pub(super) struct TreeWalk<'root> {
    dirs: DirStack<'root>,
    /// A stack. Its `Leave`s are the directories that the walk is in, outermost first.
    pending: Vec<WalkTask>,
    names_max: usize,
    truncated: bool,
    purpose: Purpose,
    /// A removing walk does not enter the read-only trees of a workspace of this owner.
    spares: Option<Owner>,
}

impl<'root> TreeWalk<'root> {
    /// Walks over everything in `root` except `.git`. It visits at least `entries_max` + 1 entries,
    /// so a caller that counts them notices a larger tree.
    pub(super) fn to_read(root: BorrowedFd<'root>, entries_max: u64) -> Result<Self, Errno> {
        Self::over(root, entries_max, Purpose::Read)
    }

    /// As [`TreeWalk::to_read`], with `.git` as an ordinary entry. Directories are listed only after
    /// [`WalkEvent::Enter`], unless the caller skips them.
    pub(super) fn to_choose(root: BorrowedFd<'root>, entries_max: u64) -> Result<Self, Errno> {
        Self::over(root, entries_max, Purpose::Choose)
    }

    fn over(root: BorrowedFd<'root>, entries_max: u64, purpose: Purpose) -> Result<Self, Errno> {
        let names_max = usize::try_from(entries_max.saturating_add(1)).unwrap_or(usize::MAX);
        let mut walk = Self::new(root, names_max, purpose);
        walk.list(walk.listing(root)?)?;
        Ok(walk)
    }

    /// Walks over the entry `name` of `parent` and everything in it.
    pub(super) fn to_remove(parent: BorrowedFd<'root>, name: CString) -> Self {
        let mut walk = Self::new(parent, NAMES_HELD_MAX, Purpose::Remove);
        walk.pending.push(WalkTask::Visit { name, kind: None });
        walk
    }

    /// As [`TreeWalk::to_remove`], but a directory of a read-only tree is [`WalkEvent::Unopened`] with `EROFS`.
    pub(super) fn to_remove_writable(
        parent: BorrowedFd<'root>,
        name: CString,
        owner: Owner,
    ) -> Self {
        Self { spares: Some(owner), ..Self::to_remove(parent, name) }
    }

    fn new(root: BorrowedFd<'root>, names_max: usize, purpose: Purpose) -> Self {
        let dirs = DirStack::new(root);
        Self { dirs, pending: Vec::new(), names_max, truncated: false, purpose, spares: None }
    }

    /// The directory of the last event.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.dirs.current()
    }

    /// The depth of that directory below the root.
    pub(super) fn depth(&self) -> usize {
        self.dirs.depth()
    }

    /// Whether a directory had more names than the walk could hold.
    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    /// The path of the current directory, for an error; cut if it is very long.
    pub(super) fn path(&self) -> PathBuf {
        let mut path = PathBuf::new();
        for pending in &self.pending {
            if let WalkTask::Leave { name } = pending {
                if path.as_os_str().len() + name.count_bytes() > PATH_SHOWN_BYTES_MAX {
                    return path.join("…");
                }
                path.push(as_path(name));
            }
        }
        path
    }

    /// Skips the contents of the directory just entered, in a walk made by [`TreeWalk::to_choose`].
    pub(super) fn pass_over(&mut self) {
        if matches!(self.pending.last(), Some(WalkTask::Contents(_))) {
            self.pending.pop();
        }
    }

    /// Returns the next event, or `None` at the end.
    ///
    /// # Errors
    /// The parent directory cannot be reopened, or an open directory cannot be listed.
    pub(super) fn advance(&mut self) -> Result<Option<WalkEvent>, WorkspaceError> {
        match self.pending.pop() {
            None => Ok(None),
            Some(WalkTask::Visit { name, kind }) => Ok(Some(self.visit(name, kind))),
            Some(WalkTask::Contents(listing)) => match self.list(listing) {
                Ok(()) => self.advance(),
                Err(errno) => {
                    Err(WorkspaceFault::System { operation: "list", errno }.at(self.path()))
                }
            },
            Some(WalkTask::Leave { name }) => match self.dirs.ascend() {
                Ok(()) => Ok(Some(WalkEvent::Leave { name })),
                Err(errno) => {
                    Err(WorkspaceFault::System { operation: "return to", errno }.at(self.path()))
                }
            },
        }
    }

    fn visit(&mut self, name: CString, listed: Option<Type>) -> WalkEvent {
        let kind = match listed.map_or_else(|| self.look_up(&name), Ok) {
            Ok(Type::Directory) => return self.enter(name),
            Ok(Type::File) => FileKind::Regular,
            Ok(Type::Symlink) => FileKind::Symlink,
            Ok(_) => FileKind::Special,
            Err(errno) => return WalkEvent::Unopened { name, errno },
        };
        WalkEvent::Entry { name, kind }
    }

    /// The type of an entry whose file system lists no types.
    fn look_up(&self, name: &CStr) -> Result<Type, Errno> {
        let stat = fstatat(self.directory(), name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(match status::file_type(&stat) {
            SFlag::S_IFDIR => Type::Directory,
            SFlag::S_IFREG => Type::File,
            SFlag::S_IFLNK => Type::Symlink,
            SFlag::S_IFIFO => Type::Fifo,
            SFlag::S_IFSOCK => Type::Socket,
            SFlag::S_IFBLK => Type::BlockDevice,
            _ => Type::CharacterDevice,
        })
    }

    fn enter(&mut self, name: CString) -> WalkEvent {
        match self.open(&name) {
            Ok((directory, stat)) => {
                self.dirs.descend(directory, &stat);
                WalkEvent::Enter { name, stat }
            }
            Err(errno) => WalkEvent::Unopened { name, errno },
        }
    }

    /// Opens the directory `name` of the current one, and lists it or schedules the listing.
    fn open(&mut self, name: &CStr) -> Result<(OwnedFd, FileStat), Errno> {
        let remove = self.purpose == Purpose::Remove;
        let opened = match open_beneath::open_directory(self.directory(), name) {
            Err(Errno::EACCES) if remove => {
                let flags = FchmodatFlags::NoFollowSymlink;
                fchmodat(self.directory(), name, Mode::S_IRWXU, flags)?;
                open_beneath::open_directory(self.directory(), name)
            }
            opened => opened,
        };
        let directory = opened?;
        let stat = fstat(&directory)?;
        if self.spares.is_some_and(|owner| status::is_read_only(&stat, owner)) {
            return Err(Errno::EROFS);
        }
        if remove && !status::file_mode(&stat).contains(Mode::S_IRWXU) {
            fchmod(&directory, Mode::S_IRWXU)?;
        }
        let listing = self.listing(directory.as_fd())?;
        let held = self.pending.len();
        self.pending.push(WalkTask::Leave { name: name.to_owned() });
        if self.purpose == Purpose::Choose {
            self.pending.push(WalkTask::Contents(listing));
        } else if let Err(errno) = self.list(listing) {
            self.pending.truncate(held);
            return Err(errno);
        }
        Ok((directory, stat))
    }

    /// Opens `directory` again for listing: the caller's descriptor may be `O_PATH` or already read.
    fn listing(&self, directory: BorrowedFd<'_>) -> Result<Dir, Errno> {
        if self.purpose == Purpose::Choose {
            return open_beneath::open_listing(directory);
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Dir::openat(directory, c".", flags, Mode::empty())
    }

    /// Pushes the names of `listing` to the stack, the first in order on top.
    fn list(&mut self, listing: Dir) -> Result<(), Errno> {
        let held = self.pending.len();
        // At least one, so that a removing walk makes progress.
        let names_max = self.names_max.saturating_sub(held).max(1);
        for entry in listing {
            let entry = match entry {
                // The directory was removed after it was opened.
                Err(Errno::ENOENT) if self.purpose == Purpose::Choose => break,
                entry => entry?,
            };
            let name = entry.file_name();
            if name == c"." || name == c".." || (self.purpose == Purpose::Read && name == GIT) {
                continue;
            }
            if self.pending.len() - held == names_max {
                self.truncated = true;
                break;
            }
            self.pending.push(WalkTask::Visit { name: name.to_owned(), kind: entry.file_type() });
        }
        if let Some(listed) = self.pending.get_mut(held..) {
            listed.sort_unstable_by(|a, b| b.name().cmp(a.name()));
        }
        Ok(())
    }
}

/// Converts a name to a standard library path.
pub(super) fn as_path(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::tempdir;

    use super::*;
    use crate::testing::directory;

    fn steps(walk: &mut TreeWalk<'_>) -> Vec<String> {
        let mut steps = Vec::new();
        while let Some(event) = walk.advance().unwrap() {
            let (sign, name) = match &event {
                WalkEvent::Enter { name, .. } => ('>', name),
                WalkEvent::Leave { name } => ('<', name),
                WalkEvent::Entry { name, kind: FileKind::Regular } => ('=', name),
                WalkEvent::Entry { name, kind: FileKind::Symlink } => ('@', name),
                WalkEvent::Entry { name, .. } => ('?', name),
                WalkEvent::Unopened { name, .. } => ('!', name),
            };
            steps.push(format!("{sign}{}", as_path(name).display()));
        }
        steps
    }

    #[test]
    fn the_order_is_that_of_the_names_with_contents_in_between() {
        let place = tempdir().unwrap();
        fs::create_dir_all(place.path().join("b/a")).unwrap();
        fs::create_dir_all(place.path().join("b/.git")).unwrap();
        for name in ["c", "a", "b/z", "b/a/x", "b-"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        symlink("b", place.path().join("link")).unwrap();
        let root = directory(place.path());
        let mut walk = TreeWalk::to_read(root.as_fd(), 100).unwrap();
        let expected = ["=a", ">b", ">a", "=x", "<a", "=z", "<b", "=b-", "=c", "@link"];
        assert_eq!(steps(&mut walk), expected);
    }

    #[test]
    fn a_choosing_walk_returns_everything_and_lists_no_skipped_directory() {
        let place = tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/inner")).unwrap();
        fs::create_dir_all(place.path().join("b/inner")).unwrap();
        fs::write(place.path().join(".git"), "").unwrap();
        let root = directory(place.path());
        let mut walk = TreeWalk::to_choose(root.as_fd(), 100).unwrap();
        let mut seen = Vec::new();
        while let Some(event) = walk.advance().unwrap() {
            if let WalkEvent::Enter { name, .. } = &event {
                if name.as_c_str() == c"a" {
                    walk.pass_over();
                } else if name.as_c_str() == c"b" {
                    // Listed when the walk goes on, and not before.
                    fs::write(place.path().join("b/late"), "").unwrap();
                }
            }
            seen.push(match event {
                WalkEvent::Enter { name, .. } => format!(">{}", as_path(&name).display()),
                WalkEvent::Leave { name } => format!("<{}", as_path(&name).display()),
                WalkEvent::Entry { name, .. } => format!("={}", as_path(&name).display()),
                WalkEvent::Unopened { name, errno } => panic!("{name:?}: {errno}"),
            });
        }
        // After the contents are listed, skipping has no effect.
        walk.pass_over();
        assert_eq!(seen, ["=.git", ">a", "<a", ">b", ">inner", "<inner", "=late", "<b"]);
    }

    #[test]
    fn a_directory_moved_under_the_walk_ends_it() {
        let place = tempdir().unwrap();
        let levels = 40;
        crate::testing::make_deep(place.path(), levels);
        let root = directory(place.path());
        let mut walk = TreeWalk::to_read(root.as_fd(), 1_000).unwrap();
        for _ in 0..levels {
            assert!(matches!(walk.advance(), Ok(Some(WalkEvent::Enter { .. }))));
        }
        // Moved from the middle, where the walk has no descriptor open.
        let middle = place.path().join(["d"; 20].join("/"));
        fs::rename(middle, place.path().join("elsewhere")).unwrap();
        let lost = loop {
            match walk.advance() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the walk came back to a directory it never entered"),
                Err(error) => break error,
            }
        };
        assert!(matches!(lost, WorkspaceError::System { source: Errno::ESTALE, .. }), "{lost}");
    }

    #[test]
    fn the_path_of_an_error_is_cut() {
        let place = tempdir().unwrap();
        crate::testing::make_deep(place.path(), 2_000);
        let root = directory(place.path());
        let mut walk = TreeWalk::to_read(root.as_fd(), 10_000).unwrap();
        while !matches!(walk.advance().unwrap(), Some(WalkEvent::Entry { .. })) {}
        let path = walk.path();
        assert!(path.starts_with("d/d/d") && path.ends_with("…"));
        assert!(path.as_os_str().len() < PATH_SHOWN_BYTES_MAX + 8);
    }
}
