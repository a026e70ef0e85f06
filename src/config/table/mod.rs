//! The one table of variables. The parser, `docs/configuration.md`, `deploy/systemd/cofferdam.env`
//! and `cofferdam serve --help` come from it.

mod cases;
mod egress;
mod engine;
mod evaluations;
mod jobs;
mod service;
mod variable;

pub use self::cases::*;
pub use self::egress::*;
pub use self::engine::*;
pub use self::evaluations::*;
pub use self::jobs::*;
pub use self::service::*;
pub use self::variable::{DefaultValue, Variable, VariableGroup};

/// Every group, in the order of the documents.
pub const GROUPS: [&VariableGroup; 17] = [
    &LISTENING,
    &HTTP,
    &TOKENS,
    &WORKSPACES,
    &RUNS,
    &JOBS_OF_AGENTS,
    &JOB_MAXIMA,
    &FIRECRACKER,
    &ENGINE_OF_AGENTS,
    &ENGINE_REQUESTS,
    &EVALUATIONS,
    &EVALUATION_FILES,
    &EVALUATION_NETWORK,
    &CASES_OF_AGENTS,
    &CASES_OVER_HTTP,
    &EGRESS,
    &LOGS,
];

/// Every variable.
pub fn variables() -> impl Iterator<Item = &'static Variable> {
    GROUPS.into_iter().flat_map(|group| group.variables)
}
