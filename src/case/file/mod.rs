//! The case file: YAML to a typed [`Case`], with every error at once.

mod agents;
mod block;
mod environment;
mod finding;
mod grader;
mod matrix;
mod node;
mod parse;
mod paths;
mod request;
mod source;

pub use agents::{CaseHarness, HarnessKind, HarnessNetwork};
pub use environment::{
    CaseContainer, CaseEnvironment, CaseLimits, CaseSetup, ContainerBackend, EnvironmentKind,
    StubTarget,
};
pub use finding::{CaseCode, CaseFinding, CaseReport};
pub use grader::{CaseGrader, GraderKind, InjectedFile, TestCounts};
pub use matrix::{CaseMatrix, MatrixEntry};
pub use parse::{
    Availability, Case, CaseFaults, CaseTask, CheckedCase, load_case, load_case_with_text,
};
pub use source::{CaseFixtures, CaseOracle, CaseSource, SourceIsolation, SourceOrigin};
