//! An engine, and one that is put together of its parts.

use std::fmt::Debug;
use std::sync::Arc;

use super::files::WorkspaceFs;
use super::programs::ProgramRunner;
use super::workspace::WorkspaceManager;
use crate::workspace::EngineCapabilities;

/// Has workspaces, their files and their programs.
pub trait Engine: Debug + Send + Sync {
    /// Makes and ends workspaces.
    fn manager(&self) -> &dyn WorkspaceManager;

    /// Has the files of workspaces.
    fn fs(&self) -> &dyn WorkspaceFs;

    /// Runs programs in workspaces.
    fn runner(&self) -> &dyn ProgramRunner;

    /// What the engine can do.
    fn describe(&self) -> EngineCapabilities;
}

/// Has an engine.
pub trait EngineProvider: Debug + Send + Sync {
    /// The engine.
    fn engine(&self) -> Arc<dyn Engine>;
}

/// An engine of parts.
#[derive(Debug)]
struct ComposedEngine {
    manager: Arc<dyn WorkspaceManager>,
    fs: Arc<dyn WorkspaceFs>,
    runner: Arc<dyn ProgramRunner>,
}

/// An engine of these parts, which tells no capabilities.
pub fn new_engine(
    manager: Arc<dyn WorkspaceManager>,
    fs: Arc<dyn WorkspaceFs>,
    runner: Arc<dyn ProgramRunner>,
) -> Arc<dyn Engine> {
    Arc::new(ComposedEngine { manager, fs, runner })
}

impl Engine for ComposedEngine {
    fn manager(&self) -> &dyn WorkspaceManager {
        &*self.manager
    }

    fn fs(&self) -> &dyn WorkspaceFs {
        &*self.fs
    }

    fn runner(&self) -> &dyn ProgramRunner {
        &*self.runner
    }

    fn describe(&self) -> EngineCapabilities {
        EngineCapabilities::default()
    }
}
