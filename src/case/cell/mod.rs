//! A Cell: the files of one trial, and what runs commands over them. The rest of a trial, provisioning, harnesses
//! and graders, sees a Cell through [`CellExecutor`] alone.

mod capture;
mod error;
mod executor;
mod files;
mod host;
mod layout;
mod plan;
mod request;
mod result;
mod sandboxed;
mod source;
mod stage;

pub use error::{ExecCode, ExecError};
pub use executor::{
    AgentDifference, AgentSeat, CellDescription, CellExecutor, DifferenceRules, TrialCell,
};
pub use files::{CellEntry, FILE_BYTES_MAX, LIST_ENTRIES_MAX};
pub use host::{
    ContainerCaches, ContainerCell, ContainerHost, ContainerSettings, HostCell, HostTrialCell,
    LocalCell, LocalSettings, serve_container, serve_keeper, serve_step,
};
pub use plan::{CellExecutorKind, CellSettings, StepLimits};
pub use request::{ExecRequest, STDIN_BYTES_MAX, StepAccess, TIMEOUT_DEFAULT};
pub use result::ExecResult;
pub use sandboxed::{CellBase, CellTrees, SandboxedCell};
