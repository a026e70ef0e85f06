//! `service.json`: whose run it is, and what a service has to know of it after a restart.

use serde::{Deserialize, Serialize};

use crate::case::service::api::{CaseCellCounts, CaseRunFault, CaseRunStatus, CaseRunView};
use cofferdam_core::job::Idempotency;

/// Its name.
pub const SERVICE_FILE: &str = "service.json";
/// The longest one, bytes.
pub const SERVICE_FILE_BYTES_MAX: u64 = 1 << 20;

/// The document. Unknown keys come from later versions and are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFile {
    /// The id of the run.
    pub run_id: String,
    /// The name of the token whose run it is. One without a name is named by its digest.
    pub owner: String,
    /// Larger than that of every run before.
    pub order: u64,
    /// The id of the Case.
    pub case: String,
    /// When it was admitted.
    pub created_at: String,
    /// When its first Cell began.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Its state.
    pub status: CaseRunStatus,
    /// Whether it ends early.
    pub is_canceling: bool,
    /// Whether the files of its Case are in its own directory.
    pub is_uploaded: bool,
    /// The digest of all that its Cells read besides the case file, once its first Cell was begun.
    pub source_digest: Option<String>,
    /// The key by which its request is known again.
    pub idempotency: Option<Idempotency>,
    /// Its Cells. While it lives, they are counted anew by the next service.
    pub cells: CaseCellCounts,
    /// Cells that passed.
    pub passed: u64,
    /// Cells that did not pass.
    pub not_passed: u64,
    /// Why it ended early, if not by a client.
    pub error: Option<CaseRunFault>,
}

impl ServiceFile {
    /// What a client sees of it.
    pub fn view(&self) -> CaseRunView {
        CaseRunView {
            run_id: self.run_id.clone(),
            case: self.case.clone(),
            status: self.status,
            cells: self.cells,
            passed: self.passed,
            not_passed: self.not_passed,
            created_at: self.created_at.clone(),
            started_at: self.started_at.clone(),
            finished_at: self.finished_at.clone(),
            error: self.error.clone(),
        }
    }
}
