//! The backend `firecracker`, as the environment asks for it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failure::{Failure, error_words};
use crate::config::{FirecrackerConfig, JailerConfig};
use crate::executor::Executor;
use cofferdam_firecracker::{Jailer, MicroVms, Settings, Vmm};

/// What holds workspaces of jobs is its owner's alone.
const WORK_MODE: u32 = 0o700;
/// Everybody else.
const OTHERS: u32 = 0o077;
const WORK_DIR: &str = "FIRECRACKER_WORK_DIR";
const CHROOT_BASE: &str = "FIRECRACKER_JAILER_CHROOT_BASE";
/// Control groups as every system has them that boxes are at their best on.
const CGROUP_VERSION: u8 = 2;

/// What runs `firecracker` jobs, and what of the host they use meanwhile.
#[derive(Debug, Clone)]
pub struct VirtualMachines {
    /// What runs them.
    pub backend: Arc<dyn Executor>,
    /// What no box may show: directories that are there.
    pub private: Vec<PathBuf>,
}

impl VirtualMachines {
    /// Those of `config`. Makes the directories they need, before there is a sandbox: only what is
    /// there by then can be kept out of sight wherever links lead. Whether a machine can be had is
    /// for the backend to say, job by job.
    ///
    /// # Errors
    /// A directory that cannot be made, or that others can look into.
    pub fn of(config: &FirecrackerConfig) -> Result<Self, Failure> {
        let work_directory = made(&config.work_directory, WORK_DIR)?;
        let mode = fs::metadata(&work_directory).map(|metadata| metadata.permissions().mode());
        let mode = mode.map_err(|error| fault(WORK_DIR, &work_directory, &error))?;
        if mode & OTHERS != 0 {
            let path = work_directory.display();
            let words = format!("{path}: others can look into it; chmod 700 {path}");
            return Err(Failure::option(WORK_DIR, words));
        }
        let jailer = config.jailer.as_ref().map(jailer);
        let mut private = vec![work_directory.clone()];
        if let Some(jailer) = &jailer {
            private.push(made(&jailer.jails(&config.firecracker), CHROOT_BASE)?);
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
        Ok(Self { backend: Arc::new(MicroVms::new(settings, vmm)), private })
    }
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

/// `directory` as it really is, made where it is not there.
fn made(directory: &Path, variable: &str) -> Result<PathBuf, Failure> {
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

    fn config(place: &Path) -> FirecrackerConfig {
        FirecrackerConfig {
            firecracker: place.join("firecracker"),
            kernel: place.join("kernel"),
            root_image: place.join("image"),
            root_directory: place.join("root"),
            initrd: None,
            work_directory: place.join("state/work"),
            jailer: None,
        }
    }

    #[test]
    fn what_machines_use_is_there_for_nobody_else_and_private() {
        let place = tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let jailer = JailerConfig {
            binary: place.join("jailer"),
            uid: 991,
            gid: 992,
            chroot_base: place.join("jails"),
        };
        let config = FirecrackerConfig { jailer: Some(jailer), ..config(&place) };
        let machines = VirtualMachines::of(&config).unwrap();
        let expected = ["state/work", "jails/firecracker"].map(|path| place.join(path));
        assert_eq!(machines.private, expected);
        for path in expected {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{path:?}");
        }
        let why = machines.backend.describe().unwrap_err().to_string();
        assert!(why.contains(place.join("firecracker").to_str().unwrap()), "{why}");
    }

    #[test]
    fn a_work_directory_that_cannot_be_or_is_not_private_is_named() {
        let place = tempdir().unwrap();
        let config = config(place.path());
        fs::create_dir_all(&config.work_directory).unwrap();
        fs::set_permissions(&config.work_directory, Permissions::from_mode(0o750)).unwrap();
        let told = VirtualMachines::of(&config).unwrap_err().to_string();
        assert!(told.starts_with("FIRECRACKER_WORK_DIR: ") && told.contains("chmod 700"), "{told}");
        fs::remove_dir(&config.work_directory).unwrap();
        fs::write(&config.work_directory, "").unwrap();
        let told = VirtualMachines::of(&config).unwrap_err().to_string();
        assert!(told.starts_with("FIRECRACKER_WORK_DIR: "), "{told}");
    }
}
