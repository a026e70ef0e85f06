//! A directory that a job names, opened once, so that the directory that is checked is the one that
//! is copied.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstat};

use super::error::{During, WorkspaceError, WorkspaceFault};
use crate::walk::dir_stack::Identity;

/// The most directories above a source.
const LEVELS_MAX: usize = 65_536;
/// Flags to open a directory without reading it.
const PATH_ONLY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// An open directory and its path. Later changes of links have no effect.
#[derive(Debug)]
pub struct SourceDir {
    directory: OwnedFd,
    asked: PathBuf,
    resolved: PathBuf,
    identity: Identity,
}

/// The location of a directory in its file system, independent of mounts.
#[derive(Debug, PartialEq, Eq)]
struct DirLocation {
    /// `major:minor`.
    device: Vec<u8>,
    path: PathBuf,
}

impl SourceDir {
    /// Opens the directory `path`. Links are followed, except the magic links of `/proc`: their
    /// target may be in another mount namespace.
    ///
    /// # Errors
    /// `path` is not a directory or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        Self::open_with(path, ResolveFlag::RESOLVE_NO_MAGICLINKS)
    }

    /// As [`SourceDir::open`], but a link anywhere on `path` is refused with `ELOOP`.
    ///
    /// # Errors
    /// As [`SourceDir::open`].
    pub fn open_without_links(path: &Path) -> Result<Self, WorkspaceError> {
        Self::open_with(path, ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    /// The directory that is open already. Errors call it `name`.
    ///
    /// # Errors
    /// The kernel does not tell what it is.
    pub fn of_open(directory: OwnedFd, name: &Path) -> Result<Self, WorkspaceError> {
        Self::of(directory, name).map_err(|fault| fault.at(name))
    }

    fn open_with(path: &Path, resolve: ResolveFlag) -> Result<Self, WorkspaceError> {
        let how = OpenHow::new().flags(PATH_ONLY).resolve(resolve);
        let opened = openat2(AT_FDCWD, path, how).during("open");
        opened.and_then(|directory| Self::of(directory, path)).map_err(|fault| fault.at(path))
    }

    fn of(directory: OwnedFd, asked: &Path) -> Result<Self, WorkspaceFault> {
        let identity = Identity::of(&fstat(&directory).during("stat")?);
        let link = format!("/proc/thread-self/fd/{}", directory.as_raw_fd());
        let resolved = fs::read_link(link).during("resolve")?;
        Ok(Self { directory, asked: asked.to_owned(), resolved, identity })
    }

    /// The path that it was opened with.
    pub fn asked(&self) -> &Path {
        &self.asked
    }

    /// The path of the directory when it was opened, links resolved.
    pub fn resolved(&self) -> &Path {
        &self.resolved
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether this directory is one of `others` or inside one, by any path or mount.
    ///
    /// # Errors
    /// A parent directory cannot be opened, or there is no `/proc`.
    pub fn lies_in(&self, others: &[Self]) -> Result<bool, WorkspaceError> {
        let lies = || -> Result<bool, WorkspaceFault> {
            Ok(self.is_below(others)? || self.is_mounted_from(others)?)
        };
        lies().map_err(|fault| fault.at(&self.asked))
    }

    /// Compares the directories above this one.
    fn is_below(&self, others: &[Self]) -> Result<bool, WorkspaceFault> {
        let mut identity = self.identity;
        let mut above: Option<OwnedFd> = None;
        for _ in 0..LEVELS_MAX {
            if others.iter().any(|other| other.identity == identity) {
                return Ok(true);
            }
            let here = above.as_ref().map_or(self.directory.as_fd(), AsFd::as_fd);
            let parent = openat(here, c"..", PATH_ONLY, Mode::empty()).during("open parent of")?;
            let parent_identity = Identity::of(&fstat(&parent).during("stat parent of")?);
            if parent_identity == identity {
                return Ok(false);
            }
            identity = parent_identity;
            above = Some(parent);
        }
        Err(Errno::ELOOP).during("open parent of")
    }

    /// Compares locations in the file system: a bind mount has other directories above it.
    fn is_mounted_from(&self, others: &[Self]) -> Result<bool, WorkspaceFault> {
        let mounts = fs::read("/proc/thread-self/mountinfo").during("list mounts above")?;
        let Some(place) = self.place(&mounts)? else { return Ok(false) };
        for other in others {
            let other = other.place(&mounts)?;
            if other.is_some_and(|other| place.is_in(&other)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The location of the directory; `None` on a mount that `mountinfo` does not list. That is the
    /// mount of a changed root directory, which is visible by one path only.
    fn place(&self, mounts: &[u8]) -> Result<Option<DirLocation>, WorkspaceFault> {
        let info = format!("/proc/thread-self/fdinfo/{}", self.directory.as_raw_fd());
        let info = fs::read_to_string(info).during("find mount of")?;
        let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
        let lines = mounts.split(|byte| *byte == b'\n');
        let mount = mount.ok_or(Errno::ENOSYS).during("find mount of")?;
        let found = lines.filter_map(MountInfo::parse).find(|line| line.id == mount.as_bytes());
        let Some(mount) = found else { return Ok(None) };
        // The directory was moved meanwhile if it is not below the mount point.
        let inside = self.resolved.strip_prefix(&mount.point).map_err(|_| Errno::ESTALE);
        let path = mount.root.join(inside.during("find mount of")?);
        Ok(Some(DirLocation { device: mount.device.to_vec(), path }))
    }
}

impl DirLocation {
    fn is_in(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

impl AsFd for SourceDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The needed fields of a line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct MountInfo<'a> {
    id: &'a [u8],
    device: &'a [u8],
    /// The mounted directory of the file system.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

impl<'a> MountInfo<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let (id, _parent, device) = (words.next()?, words.next()?, words.next()?);
        let (root, point) = (unescaped(words.next()?), unescaped(words.next()?));
        Some(Self { id, device, root, point })
    }
}

/// Decodes a path of `mountinfo`, in which blanks and backslashes are octal escapes.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text;
    while let Some((first, rest)) = left.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                left = rest.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                left = rest;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::mount::{MsFlags, mount};
    use tempfile::tempdir;

    use super::*;
    use crate::testing::in_own_mounts;

    fn lies_in(path: &Path, store: &Path) -> bool {
        SourceDir::open(path).unwrap().lies_in(&[SourceDir::open(store).unwrap()]).unwrap()
    }

    #[test]
    fn a_source_stays_the_directory_that_was_opened() {
        let place = tempdir().unwrap();
        let at = |name: &str| place.path().canonicalize().unwrap().join(name);
        fs::create_dir(at("one")).unwrap();
        fs::create_dir(at("other")).unwrap();
        symlink("one", at("link")).unwrap();
        let source = SourceDir::open(&at("link")).unwrap();
        fs::remove_file(at("link")).unwrap();
        symlink("other", at("link")).unwrap();
        assert_eq!((source.asked(), source.resolved()), (&*at("link"), &*at("one")));
        assert_eq!(source.identity(), SourceDir::open(&at("one")).unwrap().identity());
    }

    #[test]
    fn a_link_anywhere_is_refused_where_links_are_not_wanted() {
        let place = tempdir().unwrap();
        let at = |name: &str| place.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("real/inner")).unwrap();
        symlink("real", at("link")).unwrap();
        assert!(SourceDir::open_without_links(&at("real/inner")).is_ok());
        for path in ["link", "link/inner"] {
            let refused = SourceDir::open_without_links(&at(path)).unwrap_err();
            assert!(matches!(refused, WorkspaceError::System { source: Errno::ELOOP, .. }));
            assert!(SourceDir::open(&at(path)).is_ok());
        }
    }

    #[test]
    fn neither_a_file_nor_a_magic_link_is_opened() {
        for (path, errno) in [
            ("/dev/null", Errno::ENOTDIR),
            ("/nowhere/at/all", Errno::ENOENT),
            ("/proc/self/cwd", Errno::ELOOP),
            ("/proc/self/root/tmp", Errno::ELOOP),
        ] {
            let refused = SourceDir::open(Path::new(path)).unwrap_err();
            let (operation, path) = ("open", path.into());
            assert_eq!(refused, WorkspaceError::System { operation, path, source: errno });
        }
    }

    #[test]
    fn a_directory_inside_another_is_found_by_every_path_and_mount() {
        let place = tempdir().unwrap();
        in_own_mounts(move || {
            let at = |name: &str| place.path().join(name);
            for name in ["store/runs/job a", "storehouse", "beside", "bound", "part"] {
                fs::create_dir_all(at(name)).unwrap();
            }
            symlink("store/runs", at("link")).unwrap();
            for (from, to) in [("store", "bound"), ("store/runs/job a", "part")] {
                let none = None::<&str>;
                mount(Some(&at(from)), &at(to), none, MsFlags::MS_BIND, none).unwrap();
            }
            for (name, expected) in [
                ("store", true),
                ("store/runs", true),
                ("store/runs/job a", true),
                ("link/job a", true),
                ("bound", true),
                ("bound/runs", true),
                ("part", true),
                ("storehouse", false),
                ("beside", false),
                ("", false),
            ] {
                assert_eq!(lies_in(&at(name), &at("store")), expected, "{name}");
            }
            // The other way round, through a mount of it.
            assert!(lies_in(&at("store/runs/job a"), &at("bound")));
        });
    }

    #[test]
    fn a_line_of_mounts_is_read_with_its_escapes() {
        let line = br"36 35 98:0 /a\040b /m\134n rw,noatime master:1 - ext3 /dev/root rw";
        let (root, point) = ("/a b".into(), r"/m\n".into());
        let expected = MountInfo { id: b"36", device: b"98:0", root, point };
        assert_eq!(MountInfo::parse(line), Some(expected));
        assert_eq!(MountInfo::parse(b""), None);
    }
}
