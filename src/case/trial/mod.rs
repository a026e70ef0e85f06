//! Trials: one Cell from its source to its grade.
//!
//! Source, start, provision, setup, agent, grade. [`TrialHost`] has what the Cells of a Case share,
//! [`TrialRunner`] runs one attempt.

mod attempt;
mod digest;
mod environments;
mod error;
mod graders;
mod host;
mod recorded;
mod runner;
mod settings;
mod sources;

pub use digest::inputs_digest;
pub use error::TrialStop;
pub use host::TrialHost;
pub use runner::TrialRunner;
pub use settings::{TrialParts, TrialSettings};
