//! Where processes of ours on one host find each other: locks, and what the dead left.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::launch::unprivileged;

/// Tried in this order: the second for containers whose `/run` is read-only.
const PLACES: [&str; 2] = ["/run/cofferdam", "/tmp/.cofferdam"];

/// A directory that only this user can write to, the same for every process.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// The first of the usual places that can be had.
    pub fn open() -> io::Result<Self> {
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        // Where nobody's privileges are to be had, others may have the usual ones.
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

    /// The state directory at `path`, made if it is not there.
    pub fn open_at(path: &Path) -> io::Result<Self> {
        make_directory(path)?;
        // In a place everybody can write to, somebody may have been there first: nothing is made
        // below it before it is known to be no link and nobody else's.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file `name` below, made empty if it is not there.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        open_lock_file(&self.path.join(name))
    }

    /// Registers this process (or this part of one) under a fresh random name.
    pub fn register(&self) -> io::Result<Instance> {
        let id = random_id()?;
        let directory = self.path.join("instances").join(&id);
        // Locked before it has its place, so that no sweeper ever finds it unlocked.
        let cradle = self.path.join(format!("new-{id}"));
        DirBuilder::new().mode(0o700).create(&cradle)?;
        let lock =
            Flock::lock(open_lock_file(&cradle.join("lock"))?, FlockArg::LockExclusiveNonblock)
                .map_err(|(_, errno)| errno)?;
        fs::rename(&cradle, &directory)?;
        Ok(Instance { id, directory, _lock: lock })
    }

    /// The instances whose processes are dead, each claimed by this call, so
    /// that two sweepers never share one. The lock is the owner mark: the
    /// kernel drops it with the owner, and nothing else does.
    pub fn abandoned(&self) -> io::Result<Vec<Instance>> {
        let mut abandoned = Vec::new();
        for entry in fs::read_dir(self.path.join("instances"))? {
            let entry = entry?;
            let Ok(file) = open_existing(&entry.path().join("lock")) else {
                // Being made or being removed just now.
                continue;
            };
            if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                let id = entry.file_name().to_string_lossy().into_owned();
                abandoned.push(Instance { id, directory: entry.path(), _lock: lock });
            }
        }
        Ok(abandoned)
    }
}

/// A registered owner of boxes; its lock lives as long as this value.
#[derive(Debug)]
pub struct Instance {
    id: String,
    directory: PathBuf,
    _lock: Flock<File>,
}

impl Instance {
    /// A random name, part of the name of everything the instance makes.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A directory that is gone with the instance.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Records the cgroup directories this instance is about to make.
    pub fn record_cgroups(&self, directories: &[PathBuf]) -> io::Result<()> {
        let lines: String =
            directories.iter().map(|path| format!("{}\n", path.display())).collect();
        fs::write(self.directory.join("cgroups"), lines)
    }

    /// The cgroup directories it recorded whose names carry its id.
    pub fn recorded_cgroups(&self) -> Vec<PathBuf> {
        let lines = fs::read_to_string(self.directory.join("cgroups")).unwrap_or_default();
        let named_after_us = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(&self.id))
        };
        lines.lines().map(PathBuf::from).filter(named_after_us).collect()
    }

    /// Forgets the instance. What it made must be gone by now.
    pub fn unregister(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.directory) {
            // A sweeper that opened the lock just before its owner let go of it claims an
            // instance that is forgotten already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Makes the directory `path` for this user alone, unless something has that name.
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
    fn an_instance_forgotten_twice_is_no_error() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open_at(&place.path().join("state")).unwrap();
        let instance = state.register().unwrap();
        instance.unregister().unwrap();
        instance.unregister().unwrap();
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
    fn nothing_is_made_behind_a_link_that_somebody_put_in_the_way() {
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
