//! Writes one file into a workspace that a tenant may have prepared as a trap.

use std::fs::File;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::error::{During, WorkspaceError, WorkspaceFault};
use super::status;
use crate::walk::open_beneath;
use cofferdam_core::values::owner::Owner;
use cofferdam_core::values::rel_path::RelPath;

/// The mode of a new directory: 0755.
const DIRECTORY_MODE: Mode = Mode::S_IRWXU
    .union(Mode::S_IRGRP)
    .union(Mode::S_IXGRP)
    .union(Mode::S_IROTH)
    .union(Mode::S_IXOTH);
/// The mode of a written file: 0644.
const FILE_MODE: Mode =
    Mode::S_IRUSR.union(Mode::S_IWUSR).union(Mode::S_IRGRP).union(Mode::S_IROTH);

/// Writes `contents` to `path` below `root`: a new file with mode 0644, owned by `owner`. An
/// existing entry of that name (a file, a hard link, a symbolic link, a fifo, a device) is unlinked
/// and not written to. Missing directories are created with mode 0755, owned by `owner`.
///
/// # Errors
/// [`WorkspaceError::DirectoryInTheWay`] if `path` is a directory,
/// [`WorkspaceError::NotADirectory`] if a directory of `path` is a file or a link, or the operation
/// that failed. No part of the file remains then.
pub fn put(
    root: BorrowedFd<'_>,
    path: &RelPath,
    contents: &[u8],
    owner: Owner,
) -> Result<(), WorkspaceError> {
    Put { path, owner }.write(root, None, contents)
}

/// As [`put`], into the upper directory of an overlay that is not mounted. The result is the same as
/// [`put`] into the mounted overlay. New directories in `upper` get the mode of the directory of
/// `template` that they will cover.
///
/// # Errors
/// As [`put`], for entries of the template too. After a tenant has used the overlay, also
/// [`WorkspaceError::NotADirectory`] for a directory of `path` that the tenant removed: the
/// overlay's whiteout has its name.
pub fn put_over_template(
    upper: BorrowedFd<'_>,
    template: BorrowedFd<'_>,
    path: &RelPath,
    contents: &[u8],
    owner: Owner,
) -> Result<(), WorkspaceError> {
    Put { path, owner }.write(upper, Some(template), contents)
}

/// As [`put`], but leaves `path` alone if it exists, as a file of any type. Returns whether it was written.
///
/// # Errors
/// As [`put`], but for [`WorkspaceError::DirectoryInTheWay`].
pub fn put_if_absent(
    root: BorrowedFd<'_>,
    path: &RelPath,
    contents: &[u8],
    owner: Owner,
) -> Result<bool, WorkspaceError> {
    let put = Put { path, owner };
    let (here, _) = put.parent(root, None)?;
    match put.create(&here, contents) {
        Err(WorkspaceFault::System { errno: Errno::EEXIST, .. }) => Ok(false),
        written => written.map(|()| true).map_err(|fault| fault.at(path.as_path())),
    }
}

/// The arguments of one write.
struct Put<'call> {
    path: &'call RelPath,
    owner: Owner,
}

impl Put<'_> {
    fn write(
        &self,
        root: BorrowedFd<'_>,
        template: Option<BorrowedFd<'_>>,
        contents: &[u8],
    ) -> Result<(), WorkspaceError> {
        let (here, covered) = self.parent(root, template)?;
        self.make_room(&here, covered.as_ref())?;
        self.create(&here, contents).map_err(|fault| fault.at(self.path.as_path()))
    }

    /// Opens the directory of the file, which is made if it is missing, and the template's.
    fn parent(
        &self,
        root: BorrowedFd<'_>,
        template: Option<BorrowedFd<'_>>,
    ) -> Result<(OwnedFd, Option<OwnedFd>), WorkspaceError> {
        let at_root = |fault: WorkspaceFault| fault.at(".");
        let mut here = root.try_clone_to_owned().during("dup").map_err(at_root)?;
        let mut covered = template
            .map(|template| template.try_clone_to_owned().during("dup").map_err(at_root))
            .transpose()?;
        let mut reached = PathBuf::new();
        let parent = self.path.parent();
        for part in parent.iter().flat_map(RelPath::parts) {
            reached.push(part);
            let below = open_covered(covered.as_ref(), part);
            here = self.enter(&here, &below, part, &reached)?;
            covered = below.ok().flatten();
        }
        Ok((here, covered))
    }

    /// Opens the directory `part` of `here`, and creates it if it is missing.
    fn enter(
        &self,
        here: &OwnedFd,
        below: &Result<Option<OwnedFd>, Errno>,
        part: &str,
        reached: &Path,
    ) -> Result<OwnedFd, WorkspaceError> {
        let opened = match open_beneath::open_directory(here, part) {
            Err(Errno::ENOENT) => match below {
                Ok(covered) => self.make_directory(here, part, covered.as_ref()),
                Err(errno) => Err(*errno).during("open"),
            },
            opened => opened.during("open"),
        };
        opened.map_err(|fault| match fault {
            WorkspaceFault::System { errno: Errno::ELOOP | Errno::ENOTDIR, .. } => {
                WorkspaceError::NotADirectory { path: reached.to_owned() }
            }
            fault => fault.at(reached),
        })
    }

    fn make_directory(
        &self,
        here: &OwnedFd,
        part: &str,
        covered: Option<&OwnedFd>,
    ) -> Result<OwnedFd, WorkspaceFault> {
        let mode = match covered {
            None => DIRECTORY_MODE,
            Some(covered) => status::directory_mode(&fstat(covered).during("stat")?),
        };
        mkdirat(here, part, Mode::S_IRWXU).during("mkdir")?;
        let made = open_beneath::open_directory(here, part).during("open")?;
        // Before the owner changes: afterwards it would need a capability.
        fchmod(&made, mode).during("chmod")?;
        self.owner.take(&made).during("chown")?;
        Ok(made)
    }

    /// Unlinks an existing entry of that name, unless it is a directory.
    fn make_room(&self, here: &OwnedFd, below: Option<&OwnedFd>) -> Result<(), WorkspaceError> {
        let name = self.path.file_name();
        let obstructed = match unlinkat(here, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(false),
            Err(Errno::EISDIR) => Ok(true),
            Err(Errno::ENOENT) => below.map_or(Ok(false), |below| is_directory(below, name)),
            Err(errno) => Err(errno),
        };
        match obstructed.during("unlink").map_err(|fault| fault.at(self.path.as_path()))? {
            true => Err(WorkspaceError::DirectoryInTheWay { path: self.path.as_path().into() }),
            false => Ok(()),
        }
    }

    fn create(&self, here: &OwnedFd, contents: &[u8]) -> Result<(), WorkspaceFault> {
        let name = self.path.file_name();
        let mut file = File::from(open_beneath::create_file(here, name).during("create")?);
        let written = self.fill(&mut file, contents);
        if written.is_err() {
            // The write's own error is returned.
            let _ = unlinkat(here, name, UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    fn fill(&self, file: &mut File, contents: &[u8]) -> Result<(), WorkspaceFault> {
        file.write_all(contents).during("write")?;
        fchmod(&*file, FILE_MODE).during("chmod")?;
        self.owner.take(&*file).during("chown")
    }
}

/// Opens the template's directory `part`. Returns `None` if the template has no such entry.
fn open_covered(template: Option<&OwnedFd>, part: &str) -> Result<Option<OwnedFd>, Errno> {
    match template.map(|template| open_beneath::open_directory(template, part)).transpose() {
        Err(Errno::ENOENT) => Ok(None),
        opened => opened,
    }
}

fn is_directory(parent: &OwnedFd, name: &str) -> Result<bool, Errno> {
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(status::file_type(&stat) == SFlag::S_IFDIR),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::mknod;
    use nix::unistd::mkfifo;
    use tempfile::tempdir;

    use super::*;
    use crate::testing::{TENANT, chmod, directory, entry, without_rights_over_files};

    fn put_at(root: &Path, path: &str) -> Result<(), WorkspaceError> {
        let path = RelPath::parse(path).unwrap();
        put(directory(root).as_fd(), &path, b"new", TENANT)
    }

    fn assert_put(root: &Path, path: &str) {
        let entry = entry(&root.join(path));
        assert_eq!(entry.contents, b"new");
        assert_eq!((entry.mode, entry.owner), (0o100_644, TENANT), "{path}");
    }

    #[test]
    fn missing_directories_are_made_for_the_owner() {
        let place = tempdir().unwrap();
        put_at(place.path(), "check/deep/solution.py").unwrap();
        assert_put(place.path(), "check/deep/solution.py");
        for path in ["check", "check/deep"] {
            let entry = entry(&place.path().join(path));
            assert_eq!((entry.mode, entry.owner), (0o40_755, TENANT));
        }
        put_at(place.path(), "top").unwrap();
        assert_put(place.path(), "top");
    }

    #[test]
    fn a_put_needs_no_capability_over_files_of_others() {
        let place = tempdir().unwrap();
        let root = place.path().to_owned();
        without_rights_over_files(move || put_at(&root, "check/file").unwrap());
        assert_put(place.path(), "check/file");
        let entry = entry(&place.path().join("check"));
        assert_eq!((entry.mode, entry.owner), (0o40_755, TENANT));
    }

    #[test]
    fn directories_that_exist_are_left_as_they_are() {
        let place = tempdir().unwrap();
        fs::create_dir(place.path().join("check")).unwrap();
        chmod(&place.path().join("check"), 0o711);
        put_at(place.path(), "check/file").unwrap();
        let entry = entry(&place.path().join("check"));
        assert_eq!((entry.mode & 0o7777, entry.owner.uid), (0o711, 0));
    }

    #[test]
    fn an_existing_entry_is_replaced_and_never_written_to() {
        let outside = tempdir().unwrap();
        let sentinel = outside.path().join("sentinel");
        fs::write(&sentinel, "untouched").unwrap();
        chmod(&sentinel, 0o600);
        let before = entry(&sentinel);
        let place = tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        symlink(&sentinel, at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        fs::hard_link(&sentinel, at("hard")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        mknod(&at("device"), SFlag::S_IFCHR, Mode::S_IRWXU, nix::sys::stat::makedev(1, 3)).unwrap();
        fs::write(at("file"), "longer than before").unwrap();
        for name in ["link", "dangling", "hard", "fifo", "device", "file"] {
            put_at(place.path(), name).unwrap();
            assert_put(place.path(), name);
        }
        assert_eq!(entry(&sentinel), before);
        assert!(!at("nowhere").exists());
    }

    #[test]
    fn a_link_or_a_file_among_the_directories_is_refused() {
        let outside = tempdir().unwrap();
        let place = tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/real")).unwrap();
        symlink(outside.path(), place.path().join("a/link")).unwrap();
        symlink("real", place.path().join("a/inside")).unwrap();
        symlink("/proc/self/root", place.path().join("a/magic")).unwrap();
        fs::write(place.path().join("a/file"), "").unwrap();
        mkfifo(&place.path().join("a/fifo"), Mode::S_IRWXU).unwrap();
        for name in ["link", "inside", "magic", "file", "fifo"] {
            let refused = put_at(place.path(), &format!("a/{name}/b/c"));
            let path = PathBuf::from(format!("a/{name}"));
            assert_eq!(refused, Err(WorkspaceError::NotADirectory { path }));
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(place.path().join("a/real")).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_in_the_way_is_an_error_of_its_own() {
        let place = tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        let path = PathBuf::from("a/b");
        assert_eq!(put_at(place.path(), "a/b"), Err(WorkspaceError::DirectoryInTheWay { path }));
    }

    #[test]
    fn over_a_template_directories_carry_its_modes() {
        let (upper, template) = (tempdir().unwrap(), tempdir().unwrap());
        fs::create_dir_all(template.path().join("check/inner")).unwrap();
        chmod(&template.path().join("check"), 0o1_511);
        chmod(&template.path().join("check/inner"), 0o770);
        fs::write(template.path().join("check/inner/old"), "old").unwrap();
        let (above, below) = (directory(upper.path()), directory(template.path()));
        for path in ["check/inner/old", "check/inner/more/new"] {
            let path = RelPath::parse(path).unwrap();
            put_over_template(above.as_fd(), below.as_fd(), &path, b"new", TENANT).unwrap();
            assert_put(upper.path(), path.as_str());
        }
        let modes = [("check", 0o711), ("check/inner", 0o770), ("check/inner/more", 0o755)];
        for (path, mode) in modes {
            let entry = entry(&upper.path().join(path));
            assert_eq!((entry.mode & 0o7777, entry.owner), (mode, TENANT), "{path}");
        }
        assert_eq!(fs::read(template.path().join("check/inner/old")).unwrap(), b"old");
    }

    #[test]
    fn over_a_template_its_entries_conflict_as_in_a_copy() {
        let (upper, template) = (tempdir().unwrap(), tempdir().unwrap());
        fs::create_dir(template.path().join("folder")).unwrap();
        fs::write(template.path().join("file"), "").unwrap();
        symlink("folder", template.path().join("link")).unwrap();
        let (above, below) = (directory(upper.path()), directory(template.path()));
        let put = |path: &str| {
            let path = RelPath::parse(path).unwrap();
            put_over_template(above.as_fd(), below.as_fd(), &path, b"new", TENANT)
        };
        let path = PathBuf::from("folder");
        assert_eq!(put("folder"), Err(WorkspaceError::DirectoryInTheWay { path }));
        for name in ["file", "link"] {
            let path = PathBuf::from(name);
            assert_eq!(put(&format!("{name}/x")), Err(WorkspaceError::NotADirectory { path }));
        }
        assert_eq!(fs::read_dir(upper.path()).unwrap().count(), 0);
        // The tenant's entry counts, not the template's entry that it covers.
        fs::create_dir(upper.path().join("file")).unwrap();
        put("file/x").unwrap();
        assert_put(upper.path(), "file/x");
    }

    #[test]
    fn what_is_there_already_stays_as_it_is() {
        let root = tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/file"), "own").unwrap();
        symlink("absent", root.path().join("d/link")).unwrap();
        symlink("d", root.path().join("away")).unwrap();
        let owner =
            Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        let put = |path: &str| {
            let path = RelPath::parse(path).unwrap();
            put_if_absent(directory(root.path()).as_fd(), &path, b"new", owner)
        };
        for (path, written) in
            [("d/file", false), ("d/link", false), ("a/b/new", true), ("a/b", false)]
        {
            assert_eq!(put(path).unwrap(), written, "{path}");
        }
        assert!(matches!(put("away/new"), Err(WorkspaceError::NotADirectory { .. })));
        assert_eq!(fs::read_to_string(root.path().join("d/file")).unwrap(), "own");
        assert_eq!(fs::read_to_string(root.path().join("a/b/new")).unwrap(), "new");
        assert!(!root.path().join("d/absent").exists() && !root.path().join("d/new").exists());
    }
}
