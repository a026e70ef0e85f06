//! Answers of the engine, as every interface gives them.

mod engine;
mod workspace;

pub use engine::{EngineCapabilities, EngineView};
pub use workspace::{CleanupView, WorkspacePage, WorkspaceStatus, WorkspaceView};
