//! What the service does: admits, begins, runs, cancels, removes, recovers.

mod admission;
mod begin;
mod cancelling;
mod reading;
mod recovery;
mod retention;
mod run;
mod service_state;

pub use service_state::{EvaluationServiceSettings, ServiceFloor};
