//! The phases of an evaluation, each in sandboxes of its own: base, agent, comparison, tests.

mod agent;
mod call;
mod comparison;
mod ending;
mod evaluate;
mod grading;
mod output;
mod program;
mod progress;
mod report;
mod settings;
mod staging;
mod steps;

pub use agent::AgentPrograms;
pub use call::EvaluationCall;
pub use comparison::{ComparedWork, Comparison, room};
pub use evaluate::Pipeline;
pub use progress::EvaluationObserver;
pub use report::xml;
pub use settings::{PipelineParts, PipelineSettings};
pub use staging::StagingDirectory;
