//! What a run must not lose sight of: the files that its Cells read besides the case file.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::sources::SOURCE_TIMEOUT;
use crate::case::cell::CellExecutorKind;
use crate::case::file::Case;
use crate::case::source::{CaseDirLimits, PreparedSource, SourceParts, SourcePlan, copy_case_dir};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::tagged_hash;
use cofferdam_tree::StopCheck;

use crate::evaluation::cache::is_raised;

/// The version of what is hashed.
const DIGEST_TAG: &str = "case-inputs-1";

#[derive(Debug, Serialize)]
struct HashedInputs {
    /// The directory of the Case with its hidden files, without what no copy has.
    directory: String,
    /// The source; a commit that the case file names stands for itself.
    source: Option<String>,
}

/// The digest of the directory of `case`, at `case_path`, and of a source outside of it. What lies in `left_out` is no
/// part of it.
///
/// # Errors
/// What cannot be read, in words.
pub fn inputs_digest(
    case: &Case,
    case_path: &Path,
    left_out: &[PathBuf],
    cancel: &CancelToken,
) -> Result<String, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let scratch = tempfile::tempdir().map_err(|error| words(&error))?;
    let opened = File::open(scratch.path()).map_err(|error| words(&error))?;
    let deadline = Deadline::after(SOURCE_TIMEOUT);
    let is_late = || deadline.passed() || is_raised(cancel);
    let nothing = BTreeSet::new();
    let limits = (left_out, CaseDirLimits::default());
    let directory = case_path.parent().unwrap_or(Path::new("/"));
    let stop = StopCheck(&is_late);
    let directory = copy_case_dir(directory, opened.as_fd(), &nothing, limits, stop)
        .map_err(|error| words(&error))?;
    let copies = tempfile::tempdir().map_err(|error| words(&error))?;
    // A worktree has the commit of HEAD, as a clone has.
    let plan = match SourcePlan::of(case, CellExecutorKind::Sandboxed) {
        SourcePlan::LocalClone(path) => Some(SourcePlan::Worktree(path)),
        SourcePlan::Nothing | SourcePlan::Clone(_) => None,
        plan => Some(plan),
    };
    let parts = SourceParts { scratch: copies.path(), clones: None, cancel, deadline };
    let source = plan.map(|plan| PreparedSource::prepare(&plan, &parts));
    let source = source.transpose().map_err(|error| words(&error))?;
    let source = source.map(|prepared| prepared.digest().to_owned());
    tagged_hash(DIGEST_TAG, &HashedInputs { directory, source }).map_err(|error| words(&error))
}
