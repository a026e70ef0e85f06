//! WORKSPACE_BASE: where the files of evaluations are while they run. Each process has a directory in it, which
//! it locks; the kernel releases the lock with the process, so that what a killed one leaves is known by it.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions, set_permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::unistd::{AccessFlags, access, geteuid};
use uuid::Uuid;

use cofferdam_tree::remove_tree;

/// The mode of the base, and of each directory in it.
const MODE: u32 = 0o700;
const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_CLOEXEC);
/// How often a directory is made anew that another process took for a leftover before it was locked.
const TRIES: usize = 100;

/// Why there is no directory for this process.
#[derive(Debug, thiserror::Error)]
pub enum SessionBaseError {
    /// The base could be another's.
    #[error("WORKSPACE_BASE: {path}: {words}", path = .path.display())]
    Refused {
        /// The base.
        path: PathBuf,
        /// What is wrong with it.
        words: &'static str,
    },
    /// A step failed.
    #[error("WORKSPACE_BASE: {path}: {source}", path = .path.display())]
    Failed {
        /// The base.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// The directory of this process in the base. It is removed when this is dropped.
#[derive(Debug)]
pub struct SessionDirectory {
    base: File,
    name: OsString,
    path: PathBuf,
    _lock: Flock<File>,
}

impl SessionDirectory {
    /// Makes one in `base`, which is made if it is missing, and removes those of processes that are gone.
    ///
    /// # Errors
    /// The base is a link, or not a directory of this user with mode 0700, or a step failed.
    pub fn open(base: &Path) -> Result<Self, SessionBaseError> {
        let failed = |source| SessionBaseError::Failed { path: base.to_owned(), source };
        let file = open_base(base)?;
        sweep(&file).map_err(failed)?;
        let path = base.canonicalize().map_err(failed)?;
        for _ in 0..TRIES {
            let name = OsString::from(Uuid::new_v4().simple().to_string());
            let path = path.join(&name);
            DirBuilder::new().mode(MODE).create(&path).map_err(failed)?;
            if let Some(lock) = held(&file, &name) {
                return Ok(Self { base: file, name, path, _lock: lock });
            }
        }
        Err(failed(io::Error::other("its directories are removed by another process")))
    }

    /// Where it is: absolute, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        remove(&self.base, &self.name);
    }
}

fn open_base(base: &Path) -> Result<File, SessionBaseError> {
    let failed = |source| SessionBaseError::Failed { path: base.to_owned(), source };
    if let Some(parent) = base.parent() {
        DirBuilder::new().recursive(true).create(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(MODE).create(base) {
        // The process's mask may have taken bits away.
        Ok(()) => set_permissions(base, Permissions::from_mode(MODE)).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    opened_base(base)
}

/// Checks, without making or removing anything, that [`SessionDirectory::open`] would use `base`.
///
/// # Errors
/// As there.
pub fn check_base(base: &Path) -> Result<(), SessionBaseError> {
    let failed =
        |errno: Errno| SessionBaseError::Failed { path: base.to_owned(), source: errno.into() };
    if base.symlink_metadata().is_ok() {
        return opened_base(base).map(drop);
    }
    // It would be made.
    let above = base.ancestors().skip(1).find(|path| path.exists()).unwrap_or(Path::new("/"));
    access(above, AccessFlags::W_OK | AccessFlags::X_OK).map_err(failed)
}

/// Opens the base, which is there.
fn opened_base(base: &Path) -> Result<File, SessionBaseError> {
    let failed = |source| SessionBaseError::Failed { path: base.to_owned(), source };
    let refused = |words| SessionBaseError::Refused { path: base.to_owned(), words };
    let file = open(base, DIRECTORY, Mode::empty()).map_err(|errno| match errno {
        Errno::ELOOP | Errno::ENOTDIR => refused("want a directory, not a link or a file"),
        errno => failed(errno.into()),
    })?;
    let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(refused("want a directory of the user of this process"));
    }
    if stat.st_mode & 0o7777 != MODE {
        return Err(refused("want a directory with mode 0700"));
    }
    Ok(file.into())
}

/// The lock of the directory `name`, if no other process has it and the directory is still there.
fn held(base: &File, name: &OsStr) -> Option<Flock<File>> {
    let opened = openat(base, name, DIRECTORY, Mode::empty()).ok()?;
    let lock = Flock::lock(File::from(opened), FlockArg::LockExclusiveNonblock).ok()?;
    let ours = fstat(&*lock).ok()?;
    let there = fstatat(base, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    ((ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)).then_some(lock)
}

/// Removes the directories of processes that are gone. Their sandboxes are dead, and the mounts and loop devices
/// went with them. An entry with another name is not ours: the base may be a directory with files of its user.
fn sweep(base: &File) -> io::Result<()> {
    let mut directory = Dir::openat(base, ".", DIRECTORY, Mode::empty())?;
    for entry in directory.iter() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_session(name) {
            continue;
        }
        let stat = match fstatat(base, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        // Held until it is gone, so that no process takes it meanwhile.
        let lock = if is_directory { held(base, name) } else { None };
        if lock.is_some() {
            remove(base, name);
        }
    }
    Ok(())
}

/// Whether `name` is one that processes give their directories.
fn is_session(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| Uuid::try_parse(name).is_ok())
}

fn remove(base: &File, name: &OsStr) {
    match remove_tree(base.as_fd(), name) {
        Ok(removal) if removal.left == 0 => {}
        Ok(removal) => log::error!("WORKSPACE_BASE: {} entries of {name:?} are left", removal.left),
        Err(error) => log::error!("WORKSPACE_BASE: remove {name:?}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_directories_of_processes_that_are_gone_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("new/sessions");
        let held = SessionDirectory::open(&base).unwrap();
        fs::write(held.path().join("file"), "held").unwrap();
        let left = base.join(Uuid::new_v4().to_string());
        fs::create_dir_all(left.join("deep/deeper")).unwrap();
        set_permissions(left.join("deep"), Permissions::from_mode(0o000)).unwrap();
        let kept = base.join("of-the-user");
        fs::create_dir(&kept).unwrap();
        let link = base.join(Uuid::new_v4().simple().to_string());
        symlink(&kept, &link).unwrap();
        let other = SessionDirectory::open(&base).unwrap();
        let names = || {
            let entries = fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name());
            entries.collect::<std::collections::BTreeSet<_>>()
        };
        let name = |path: &Path| path.file_name().unwrap().to_owned();
        let foreign = [name(&kept), name(&link)];
        let ours = [name(held.path()), name(other.path())];
        assert_eq!(names(), foreign.iter().chain(&ours).cloned().collect());
        assert_eq!(fs::read_to_string(held.path().join("file")).unwrap(), "held");
        drop((held, other));
        assert_eq!(names(), foreign.into_iter().collect());
    }

    #[test]
    fn a_link_or_a_directory_that_others_reach_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("open")).unwrap();
        set_permissions(at("open"), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(at("sticky")).unwrap();
        set_permissions(at("sticky"), Permissions::from_mode(0o1700)).unwrap();
        drop(SessionDirectory::open(&at("good")).unwrap());
        check_base(&at("good")).unwrap();
        check_base(&at("new/deep")).unwrap();
        assert!(!at("new").exists());
        symlink(at("good"), at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (name, words) in
            [("open", "mode 0700"), ("sticky", "mode 0700"), ("link", "link"), ("file", "file")]
        {
            let error = SessionDirectory::open(&at(name)).unwrap_err();
            assert_eq!(check_base(&at(name)).unwrap_err().to_string(), error.to_string());
            assert!(matches!(error, SessionBaseError::Refused { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with("WORKSPACE_BASE: ") && text.contains(words), "{text}");
        }
    }
}
