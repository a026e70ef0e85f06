//! The state directory shared by all processes of this program on one host: locks, and records of
//! killed instances.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::launch::unprivileged;

/// Tried in this order. The second is for containers with a read-only `/run`.
const PLACES: [&str; 2] = ["/run/cofferdam", "/tmp/.cofferdam"];

/// How often a name is tried while sweeps of other processes take new files for abandoned ones.
const REGISTER_TRIES: usize = 16;

/// A directory that only this user can write to, the same for every process.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Opens the first usable one of the usual directories.
    pub fn open() -> io::Result<Self> {
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        // Without privileges the usual directories may belong to another user.
        let own = unprivileged::uid_outside().ok().flatten();
        let own = own.map(|uid| PathBuf::from(format!("/tmp/.cofferdam-{uid}")));
        for place in PLACES.iter().map(PathBuf::from).chain(own) {
            match Self::open_at(&place) {
                Ok(state) => return Ok(state),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Opens the state directory at `path`. Creates it if it does not exist.
    pub fn open_at(path: &Path) -> io::Result<Self> {
        make_directory(path)?;
        // In a directory that everyone can write to, another user may have created it. Nothing is
        // created below it before it is known to be no link and to belong to this user.
        let metadata = fs::symlink_metadata(path)?;
        let ours = metadata.is_dir()
            && metadata.uid() == geteuid().as_raw()
            && metadata.mode() & 0o022 == 0;
        if !ours {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        for below in ["uids", "instances"] {
            make_directory(&path.join(below))?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file `name` in it. Creates it, empty, if it does not exist.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        open_lock_file(&self.path.join(name))
    }

    /// Registers this process, or a part of it, under a new random name.
    pub fn register(&self) -> io::Result<Instance> {
        let id = random_id()?;
        let directory = self.path.join("instances").join(&id);
        // Locked before it gets its final name, so that no sweep finds it unlocked.
        let cradle = self.path.join(format!("new-{id}"));
        DirBuilder::new().mode(0o700).create(&cradle)?;
        let lock =
            Flock::lock(open_lock_file(&cradle.join("lock"))?, FlockArg::LockExclusiveNonblock)
                .map_err(|(_, errno)| errno)?;
        fs::rename(&cradle, &directory)?;
        Ok(Instance { id, path: directory, is_file: false, lock })
    }

    /// As [`StateDirectory::register`], for an owner that needs no directory: its one file is the lock
    /// and the record.
    pub fn register_alone(&self) -> io::Result<Instance> {
        for _ in 0..REGISTER_TRIES {
            let id = random_id()?;
            let path = self.path.join("instances").join(&id);
            let file = open_lock_file(&path)?;
            let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { continue };
            // A sweep may have found the file before it was locked, and removed it.
            if lock.metadata()?.nlink() > 0 {
                return Ok(Instance { id, path, is_file: true, lock });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The instances whose processes are dead. This call locks each of them, so that two sweeps
    /// never share one. The kernel releases the lock when its owner dies, and at no other time.
    pub fn abandoned(&self) -> io::Result<Vec<Instance>> {
        let mut abandoned = Vec::new();
        for entry in fs::read_dir(self.path.join("instances"))? {
            let entry = entry?;
            let is_file = entry.file_type()?.is_file();
            let path = entry.path();
            let file = if is_file { path.clone() } else { path.join("lock") };
            let Ok(file) = open_existing(&file) else {
                // It is being created or removed.
                continue;
            };
            if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                let id = entry.file_name().to_string_lossy().into_owned();
                abandoned.push(Instance { id, path, is_file, lock });
            }
        }
        Ok(abandoned)
    }
}

/// A registered owner of sandboxes. Its lock lives as long as this value.
#[derive(Debug)]
pub struct Instance {
    id: String,
    path: PathBuf,
    /// Whether it is one file, which is its lock, and no directory.
    is_file: bool,
    lock: Flock<File>,
}

impl Instance {
    /// A random name, part of the name of everything the instance creates.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its directory, removed with the instance. Nothing can be created there if it has none.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// Records the cgroup directories that this instance uses.
    pub fn record_cgroups(&self, directories: &[PathBuf]) -> io::Result<()> {
        let lines: String =
            directories.iter().map(|path| format!("{}\n", path.display())).collect();
        if self.is_file {
            return self.lock.write_all_at(lines.as_bytes(), 0);
        }
        fs::write(self.path.join("cgroups"), lines)
    }

    /// The recorded cgroup directories whose names contain its id.
    pub fn recorded_cgroups(&self) -> Vec<PathBuf> {
        let record = if self.is_file { self.path.clone() } else { self.path.join("cgroups") };
        let lines = fs::read_to_string(record).unwrap_or_default();
        let named_after_us = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(&self.id))
        };
        lines.lines().map(PathBuf::from).filter(named_after_us).collect()
    }

    /// Removes the record. Everything the instance created must be gone.
    pub fn unregister(&self) -> io::Result<()> {
        let removed =
            if self.is_file { fs::remove_file(&self.path) } else { fs::remove_dir_all(&self.path) };
        match removed {
            // A sweep that opened the lock just before its owner released it claims an instance
            // that is removed already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Creates the directory `path` for this user alone, unless the name exists.
fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// 64 random bits as hex: two owners never share a name.
fn random_id() -> io::Result<String> {
    use std::io::Read;
    let mut bytes = [0_u8; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_instance_whose_lock_is_gone_counts_as_abandoned() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open_at(&place.path().join("state")).unwrap();
        let live = state.register().unwrap();
        let dead = state.register().unwrap();
        let dead_id = dead.id().to_owned();
        dead.record_cgroups(&[
            PathBuf::from(format!("/x/cofferdam-{dead_id}")),
            PathBuf::from("/x/other"),
        ])
        .unwrap();
        drop(dead);
        let abandoned = state.abandoned().unwrap();
        let ids: Vec<&str> = abandoned.iter().map(Instance::id).collect();
        assert_eq!(ids, [dead_id.as_str()]);
        assert_eq!(
            abandoned[0].recorded_cgroups(),
            [PathBuf::from(format!("/x/cofferdam-{dead_id}"))]
        );
        assert!(state.abandoned().unwrap().is_empty(), "a claimed instance was claimed twice");
        drop(live);
    }

    #[test]
    fn an_instance_without_a_directory_is_found_once_its_lock_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open_at(&place.path().join("state")).unwrap();
        let live = state.register_alone().unwrap();
        let dead = state.register_alone().unwrap();
        let group = PathBuf::from(format!("/x/cofferdam-{}", dead.id()));
        dead.record_cgroups(&[group.clone(), PathBuf::from("/x/other")]).unwrap();
        let dead_id = dead.id().to_owned();
        drop(dead);
        let abandoned = state.abandoned().unwrap();
        let ids: Vec<&str> = abandoned.iter().map(Instance::id).collect();
        assert_eq!(ids, [dead_id.as_str()]);
        assert_eq!(abandoned[0].recorded_cgroups(), [group]);
        abandoned[0].unregister().unwrap();
        drop((abandoned, live));
        assert_eq!(state.abandoned().unwrap().len(), 1, "the one that was alive");
    }

    #[test]
    fn an_instance_can_be_unregistered_twice() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open_at(&place.path().join("state")).unwrap();
        for instance in [state.register(), state.register_alone()] {
            let instance = instance.unwrap();
            instance.unregister().unwrap();
            instance.unregister().unwrap();
        }
    }

    #[test]
    fn a_directory_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            StateDirectory::open_at(&path).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn nothing_is_created_behind_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (elsewhere, path) = (place.path().join("elsewhere"), place.path().join("state"));
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(
            StateDirectory::open_at(&path).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}
