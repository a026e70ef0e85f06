//! Answers of the engine, as every interface gives them.

mod engine;
mod workspace;

pub use engine::EngineView;
pub use workspace::{CleanupView, SavedView, WorkspacePage, WorkspaceStatus, WorkspaceView};
