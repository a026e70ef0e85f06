//! What the service runs.

use super::error::EvaluationsError;
use crate::evaluation::cache::CacheKind;
use crate::evaluation::pipeline::EvaluationObserver;

pub use crate::evaluation::pipeline::EvaluationCall;

use crate::evaluation::request::EvaluationRequest;
use crate::evaluation::result::EvaluationResult;
use cofferdam_core::Watch;

/// Runs evaluations. The service scripts its own in tests.
pub trait Evaluator: Send + Sync {
    /// Whether this host can serve the request.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, owner: &str, request: &EvaluationRequest) -> Result<(), EvaluationsError>;
    /// Bytes of each of its caches; none without caches.
    fn cache_bytes(&self) -> Vec<(CacheKind, u64)> {
        Vec::new()
    }
    /// Runs an evaluation to its end on this thread.
    fn evaluate(
        &self,
        call: &EvaluationCall<'_>,
        watch: &Watch,
        observer: &dyn EvaluationObserver,
    ) -> EvaluationResult;
}
