//! The first phases of an evaluation: the repository at its exact commit, and what is installed for it.
//!
//! git of the root file system runs in sandboxes alone. It fetches into a mirror, which the cache keeps as
//! packs and files written by the service; the repository that agents see is made of those in another
//! sandbox without a network. `.git` is made before install and put back after it.

mod agent_tools;
mod base;
mod checkout;
mod deps;
mod error;
mod git;
pub mod git_environment;
mod install;
mod located;
mod mirror;
mod phases;
mod revision;
mod source;

pub use base::{BASE_LIFETIME, Base};
pub use deps::{agent_path, is_for_install, phase_environment, with_variables};
pub use error::RepositoryError;
pub use install::InstallOutput;
pub use phases::{
    BaseRequest, BaseSource, FoundCommit, MadeBase, Repositories, RepositorySettings,
};
pub use revision::Revision;
pub use source::{RepositoryRoots, RepositorySource, SourceDenied};
