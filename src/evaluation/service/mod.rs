//! Evaluations as a service: admitted, recorded, followed, listed, cancelled.

mod api;
mod batch;
pub mod error;
mod evaluation_service;
mod evaluator;
mod floor;
pub mod junit;
mod lazy;
mod live;
mod metrics;
mod record;
#[cfg(test)]
mod tests;
mod work;

pub use crate::evaluation::cache::CacheKind;
pub use api::{
    BatchAgent, BatchRequest, BatchTask, CancelledEvaluation, EvaluationCounts, EvaluationEvents,
    EvaluationPage, EvaluationQuery, Evaluations, EventsProgress, SubmittedBatch,
};
pub use error::EvaluationsError;
pub use evaluation_service::EvaluationService;
pub use evaluator::{EvaluationCall, Evaluator};
pub use lazy::LazyEvaluations;
pub use metrics::{CacheMetrics, EvaluationMetrics, EvaluationTally};
pub use work::EvaluationServiceSettings;
