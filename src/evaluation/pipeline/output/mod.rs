//! What the programs of an evaluation write: without secrets, bounded, kept and told.

mod mixed;
mod queue;
mod secrets;

pub use mixed::{MixedOutput, OutputRules};
pub use queue::ObserverQueue;
pub use secrets::SecretValues;
