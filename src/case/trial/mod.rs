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

use std::collections::BTreeMap;
use std::time::Duration;

pub use digest::inputs_digest;
pub use error::TrialStop;
pub use host::TrialHost;
pub use runner::TrialRunner;
pub use settings::{TrialParts, TrialSettings};

/// Variables by which those of a step differ from the executor's own; `None` removes one.
pub type EnvChanges = BTreeMap<String, Option<String>>;

/// A time of a Case, in seconds.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
