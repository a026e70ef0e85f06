//! `manifest.json`: what a run was made of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use cofferdam_core::job::JobId;
use cofferdam_core::values::digest::sha256_of;

use crate::case::run::plan::PlannedCell;

/// The version of the format.
pub(super) const MANIFEST_VERSION: u32 = 1;
/// The longest manifest, bytes.
pub(super) const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// What the run does not change without being another run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDigests {
    /// Of the case file.
    pub case: String,
    /// Of the source and of what else the Case reads, as the caller defines it.
    pub source: String,
}

impl RunDigests {
    /// The digests of a case file and of a source with that digest.
    pub fn of(case_yaml: &[u8], source: impl Into<String>) -> Self {
        Self { case: sha256_of(case_yaml), source: source.into() }
    }
}

/// How the Cells of a run are run, also when it is resumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOptions {
    /// The executor that was asked for.
    pub executor: Option<String>,
    /// Whether Cells keep their files.
    pub keep: bool,
}

/// The document. Unknown keys come from later versions and are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunManifest {
    /// The version of the format.
    pub version: u32,
    /// The id of the run.
    pub run_id: JobId,
    /// The id of the Case.
    pub case: String,
    /// The case file.
    pub case_path: PathBuf,
    /// When the run was made.
    pub created_at: String,
    /// What it was made of.
    pub digests: RunDigests,
    /// How its Cells are run.
    pub options: RunOptions,
    /// Its Cells, in their order.
    pub cells: Vec<PlannedCell>,
}

/// The part of a manifest by which the runs of a Case are found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct ManifestHead {
    pub(super) created_at: String,
    pub(super) run_id: JobId,
    pub(super) case_path: PathBuf,
}
