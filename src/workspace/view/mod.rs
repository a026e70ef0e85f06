//! Answers of the engine, as every interface gives them.

mod engine;
mod process;
mod workspace;

pub use engine::{EngineCapabilities, EngineView};
pub use process::ProcessView;
pub use workspace::{
    CleanupView, EgressPage, SavedView, WorkspacePage, WorkspaceStatus, WorkspaceView,
};
