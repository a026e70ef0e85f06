//! Builds the backend `firecracker` from its configuration.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::failure::{Failure, error_words};
use crate::config::{FirecrackerConfig, JailerConfig};
use crate::executor::Executor;
use cofferdam_firecracker::{Jailer, MicroVms, Settings, Vmm};

/// Only the owner may access the workspaces of jobs.
const WORK_MODE: u32 = 0o700;
/// The permission bits of all other users.
const OTHERS: u32 = 0o077;
const WORK_DIR: &str = "FIRECRACKER_WORK_DIR";
const CHROOT_BASE: &str = "FIRECRACKER_JAILER_CHROOT_BASE";
/// The jailer uses cgroup version 2.
const CGROUP_VERSION: u8 = 2;

/// The backend of `config`, and the directories that it uses. Creates these directories, because a
/// sandbox can hide only what exists before it opens. Does not check whether a machine can start:
/// the backend reports that for each job.
///
/// # Errors
/// A directory that cannot be created, or that others can read.
pub fn create(config: &FirecrackerConfig) -> Result<(Arc<dyn Executor>, Vec<PathBuf>), Failure> {
    let work_directory = create_private(&config.work_directory, WORK_DIR)?;
    let mode = fs::metadata(&work_directory).map(|metadata| metadata.permissions().mode());
    let mode = mode.map_err(|error| fault(WORK_DIR, &work_directory, &error))?;
    if mode & OTHERS != 0 {
        let path = work_directory.display();
        let words = format!("{path}: others can read it; chmod 700 {path}");
        return Err(Failure::option(WORK_DIR, words));
    }
    let jailer = config.jailer.as_ref().map(jailer);
    let mut private = vec![work_directory.clone()];
    if let Some(jailer) = &jailer {
        private.push(create_private(&jailer.jails(&config.firecracker), CHROOT_BASE)?);
    }
    let vmm = Vmm {
        firecracker: config.firecracker.clone(),
        jailer,
        kernel: config.kernel.clone(),
        initrd: config.initrd.clone(),
        root_image: config.root_image.clone(),
        boot_arguments: String::new(),
    };
    let settings = Settings::new(work_directory, config.root_directory.clone());
    Ok((Arc::new(MicroVms::new(settings, vmm)), private))
}

fn jailer(config: &JailerConfig) -> Jailer {
    Jailer {
        binary: config.binary.clone(),
        uid: config.uid,
        gid: config.gid,
        chroot_base: config.chroot_base.clone(),
        cgroup_version: CGROUP_VERSION,
        parent_cgroup: None,
        cgroups: Vec::new(),
        netns: None,
        resource_limits: Vec::new(),
    }
}

/// `directory` with links resolved; creates it if it does not exist.
fn create_private(directory: &Path, variable: &str) -> Result<PathBuf, Failure> {
    let made = DirBuilder::new().recursive(true).mode(WORK_MODE).create(directory);
    made.and_then(|()| directory.canonicalize()).map_err(|error| fault(variable, directory, &error))
}

fn fault(variable: &str, directory: &Path, error: &io::Error) -> Failure {
    Failure::option(variable, format!("{}: {}", directory.display(), error_words(error)))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use tempfile::tempdir;

    use super::*;

    fn config(directory: &Path) -> FirecrackerConfig {
        FirecrackerConfig {
            firecracker: directory.join("firecracker"),
            kernel: directory.join("kernel"),
            root_image: directory.join("image"),
            root_directory: directory.join("root"),
            initrd: None,
            work_directory: directory.join("state/work"),
            jailer: None,
        }
    }

    #[test]
    fn the_directories_of_machines_are_private_to_their_owner() {
        let directory = tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let jailer = JailerConfig {
            binary: directory.join("jailer"),
            uid: 991,
            gid: 992,
            chroot_base: directory.join("jails"),
        };
        let config = FirecrackerConfig { jailer: Some(jailer), ..config(&directory) };
        let (backend, private) = create(&config).unwrap();
        let expected = ["state/work", "jails/firecracker"].map(|path| directory.join(path));
        assert_eq!(private, expected);
        for path in expected {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{path:?}");
        }
        let why = backend.describe().unwrap_err().to_string();
        assert!(why.contains(directory.join("firecracker").to_str().unwrap()), "{why}");
    }

    #[test]
    fn a_work_directory_that_is_missing_or_not_private_is_named() {
        let directory = tempdir().unwrap();
        let config = config(directory.path());
        fs::create_dir_all(&config.work_directory).unwrap();
        fs::set_permissions(&config.work_directory, Permissions::from_mode(0o750)).unwrap();
        let message = create(&config).unwrap_err().to_string();
        assert!(
            message.starts_with("FIRECRACKER_WORK_DIR: ") && message.contains("chmod 700"),
            "{message}"
        );
        fs::remove_dir(&config.work_directory).unwrap();
        fs::write(&config.work_directory, "").unwrap();
        let message = create(&config).unwrap_err().to_string();
        assert!(message.starts_with("FIRECRACKER_WORK_DIR: "), "{message}");
    }
}
