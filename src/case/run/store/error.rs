//! Errors of runs on disk.

use cofferdam_core::job::JobId;

use crate::store::StoreError;

/// Why a run cannot be made, used or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseRunError {
    /// A file of the run, or the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run of that id exists.
    #[error("a run {0} is there already")]
    Taken(JobId),
    /// Another process works on the run.
    #[error("the run {id} is in use by {}", process(*pid))]
    InUse {
        /// The run.
        id: String,
        /// The other process, if known.
        pid: Option<u32>,
    },
    /// There is no such run.
    #[error("no run {0:?}: want an id, the directory of a run, or a Case with a run")]
    Unknown(String),
    /// What the run was made of is not there any more.
    #[error("the {what} changed since the run {id} was made; start a new run")]
    Changed {
        /// The run.
        id: JobId,
        /// `Case` or `source`.
        what: &'static str,
    },
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
