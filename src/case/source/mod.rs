//! The files of a Case: the source of its Cells, its fixtures, what setup changes, and its directory as provisioning
//! and setup see it.
//!
//! A source is prepared once for all Cells ([`PreparedSource`]): a directory is copied, so that all see it as it was
//! then; a repository is cloned with the history up to its commit. [`set_up`] empties functions and runs commands in a
//! Cell. [`copy_case_dir`] copies the directory of the Case without what graders, the oracle and harnesses name.

mod case_dir;
mod error;
pub(in crate::case) mod git;
pub(in crate::case) mod left_out;
mod plan;
mod prepared;
mod setup;
mod staged;
mod stub;

pub use case_dir::{
    CaseDirError, CaseDirLimits, CaseListing, ListedEntry, ListedKind, copy_case_dir, hidden_names,
    shown_paths,
};
pub use error::{SourceError, SourceFault};
pub use git::clone::{CloneParts, CommitClone};
pub use git::worktree::CellWorktree;
pub use plan::{CommitPlan, SourcePlan, repository_hosts};
pub use prepared::{PreparedSource, SourceParts};
pub use setup::{SetupFault, set_up};
pub use stub::{FoundFile, STUB_BYTES_MAX, StubError, StubFault, apply_stub, stub_function};
