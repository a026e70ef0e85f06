//! The backend `firecracker` and the first program of its guests. The cargo feature `firecracker`
//! adds both to the binary.

#[cfg(feature = "firecracker")]
mod backend;
#[cfg(feature = "firecracker")]
pub mod guest_init;

use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::failure::Failure;
use crate::config::FirecrackerConfig;
use crate::executor::Executor;

/// The backend of `firecracker` jobs, and the directories that it uses on the host.
#[derive(Debug, Clone)]
pub struct FirecrackerOptions {
    /// Runs the jobs.
    pub backend: Arc<dyn Executor>,
    /// Existing directories that no sandbox may show.
    pub private: Vec<PathBuf>,
}

impl FirecrackerOptions {
    /// The options of `config`; creates the directories that the backend uses.
    ///
    /// # Errors
    /// A directory that cannot be created, or that others can read.
    #[cfg(feature = "firecracker")]
    pub fn from_config(config: &FirecrackerConfig) -> Result<Self, Failure> {
        let (backend, private) = backend::create(config)?;
        Ok(Self { backend, private })
    }

    /// A backend that is unavailable: its jobs end as `backend_unavailable`.
    ///
    /// # Errors
    /// None in this build.
    #[cfg(not(feature = "firecracker"))]
    pub fn from_config(_: &FirecrackerConfig) -> Result<Self, Failure> {
        use crate::job::Missing;
        use cofferdam_core::SetupFailure;

        let reason = "this build of cofferdam does not contain the backend";
        let missing = Missing(SetupFailure::from_words("firecracker", reason));
        Ok(Self { backend: Arc::new(missing), private: Vec::new() })
    }
}

#[cfg(all(test, not(feature = "firecracker")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_the_backend_says_so_instead_of_running_jobs() {
        let config = FirecrackerConfig {
            firecracker: "/f".into(),
            kernel: "/k".into(),
            root_image: "/i".into(),
            root_directory: "/".into(),
            initrd: None,
            work_directory: "/w".into(),
            jailer: None,
        };
        let options = FirecrackerOptions::from_config(&config).unwrap();
        let reason = options.backend.describe().unwrap_err().0;
        assert_eq!(
            reason,
            "sandbox: firecracker: this build of cofferdam does not contain the backend"
        );
    }
}
