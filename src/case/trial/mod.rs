//! Trials: one Cell from its source to its grade.
//!
//! Source, start, provision, setup, agent, grade. [`TrialHost`] has what the Cells of a Case share,
//! [`TrialRunner`] runs one attempt. [`TrialBench`] is the door of the library.

mod attempt;
mod bench;
mod digest;
mod environments;
mod error;
mod graders;
mod host;
mod hosts;
mod own;
mod recorded;
mod runner;
mod settings;
mod sources;

pub use bench::{TrialBench, TrialBenchBuilder, TrialBenchError};
pub use digest::inputs_digest;
pub use error::TrialStop;
pub use host::TrialHost;
pub use hosts::{RunHost, RunHostRequest, TrialHosts, TrialHostsSettings};
pub use own::{CellMaker, OwnCell, OwnCellRequest, OwnParts};
pub use runner::{TrialRunner, UnavailableRunner};
pub use settings::{TrialParts, TrialSettings};
