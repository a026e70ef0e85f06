//! The one walk over a directory tree: a loop, in name order, never through a link or a mount.

pub(crate) mod budget;
pub(crate) mod dir_stack;
pub(crate) mod open_beneath;
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

/// Bytes of a path put into an error: deep trees have paths of megabytes.
const PATH_SHOWN_BYTES_MAX: usize = 1024;
/// Names a walk that removes holds at once; what does not fit is left for the next walk.
const NAMES_HELD_MAX: usize = 65_536;
/// Never part of a workspace, at any depth, be it a directory or a file.
const GIT: &CStr = c".git";

/// What an entry that is not a directory is.
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
    /// A directory; [`TreeWalk::directory`] is now this one. [`TreeWalk::pass_over`] leaves it at that.
    Enter { name: CString, stat: FileStat },
    /// The same directory after its contents; [`TreeWalk::directory`] is its parent again.
    Leave { name: CString },
    /// Anything else, in [`TreeWalk::directory`].
    Entry { name: CString, kind: FileKind },
    /// An entry of [`TreeWalk::directory`] that could not be looked into: `EXDEV` for a mount.
    Unopened { name: CString, errno: Errno },
}

/// What a walk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Reading a workspace: `.git` is passed over.
    Read,
    /// Reading what the caller picks: nothing is passed over unless it says so, and no directory
    /// is listed before it could.
    Choose,
    /// Removing everything: directories closed to their owner are opened up.
    Remove,
}

#[derive(Debug)]
enum WalkTask {
    Visit {
        name: CString,
        kind: Option<Type>,
    },
    /// The contents of the directory just entered, not listed yet: only ever on top.
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

/// A walk in progress. Memory is that of the names not yet visited.
#[derive(Debug)]
pub(super) struct TreeWalk<'root> {
    dirs: DirStack<'root>,
    /// A stack; the `Leave`s in it are the directories the walk is in, outermost first.
    pending: Vec<WalkTask>,
    names_max: usize,
    truncated: bool,
    purpose: Purpose,
}

impl<'root> TreeWalk<'root> {
    /// Over everything in `root`, `.git` excepted. `entries_max` entries and one more are
    /// visited at least, so that a caller who counts them notices a larger tree.
    pub(super) fn to_read(root: BorrowedFd<'root>, entries_max: u64) -> Result<Self, Errno> {
        Self::over(root, entries_max, Purpose::Read)
    }

    /// As [`TreeWalk::to_read`], but `.git` is an entry like others, and each directory's contents
    /// are looked up only after [`WalkEvent::Enter`], unless the caller passes over them.
    pub(super) fn to_choose(root: BorrowedFd<'root>, entries_max: u64) -> Result<Self, Errno> {
        Self::over(root, entries_max, Purpose::Choose)
    }

    fn over(root: BorrowedFd<'root>, entries_max: u64, purpose: Purpose) -> Result<Self, Errno> {
        let names_max = usize::try_from(entries_max.saturating_add(1)).unwrap_or(usize::MAX);
        let mut walk = Self::new(root, names_max, purpose);
        walk.list(walk.listing(root)?)?;
        Ok(walk)
    }

    /// Over the entry `name` of `parent` and everything in it.
    pub(super) fn to_remove(parent: BorrowedFd<'root>, name: CString) -> Self {
        let mut walk = Self::new(parent, NAMES_HELD_MAX, Purpose::Remove);
        walk.pending.push(WalkTask::Visit { name, kind: None });
        walk
    }

    fn new(root: BorrowedFd<'root>, names_max: usize, purpose: Purpose) -> Self {
        let dirs = DirStack::new(root);
        Self { dirs, pending: Vec::new(), names_max, truncated: false, purpose }
    }

    /// The directory the last event speaks of.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.dirs.current()
    }

    /// How many directories below the root that is.
    pub(super) fn depth(&self) -> usize {
        self.dirs.depth()
    }

    /// Whether some directory held more names than the walk could keep.
    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    /// The path of the directory the walk is in, for an error; cut when it is very long.
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

    /// Leaves the directory just entered by a walk that chooses, none of its contents looked up.
    pub(super) fn pass_over(&mut self) {
        if matches!(self.pending.last(), Some(WalkTask::Contents(_))) {
            self.pending.pop();
        }
    }

    /// The next step, or nothing at the end. Fails only when the way back up is lost, or the
    /// file system cannot list a directory that it has opened.
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

    /// The type of an entry whose file system does not list types.
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

    /// Opens the directory `name` of the current one and notes what is in it, or that it is to
    /// be looked up.
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

    /// Opens `directory` for listing: anew, since a caller's descriptor may be an `O_PATH` one, or
    /// read before.
    fn listing(&self, directory: BorrowedFd<'_>) -> Result<Dir, Errno> {
        let open = |quietly| {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | quietly;
            Dir::openat(directory, c".", flags, Mode::empty())
        };
        if self.purpose != Purpose::Choose {
            return open(OFlag::empty());
        }
        match open(OFlag::O_NOATIME) {
            // Only its owner may look at it without a trace.
            Err(Errno::EPERM) => open(OFlag::empty()),
            opened => opened,
        }
    }

    /// Puts the names of `listing` on the stack, the first in order on top.
    fn list(&mut self, listing: Dir) -> Result<(), Errno> {
        let held = self.pending.len();
        // One at least, so that a walk that removes always gets further.
        let names_max = self.names_max.saturating_sub(held).max(1);
        for entry in listing {
            let entry = match entry {
                // Removed since it was opened.
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

/// A name as the standard library takes it.
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
    fn a_walk_that_chooses_tells_of_everything_and_lists_only_what_is_not_passed_over() {
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
        // Once the contents are on their way, passing over is of no effect.
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
        // Taken out of the middle, where the walk has no descriptor any more.
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
