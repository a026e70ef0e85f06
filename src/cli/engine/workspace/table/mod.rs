//! The verbs as data.

mod files;
mod keys;
mod programs;
mod workspaces;

use super::verb::WorkspaceVerb;

/// Every verb, in the order of the help text.
pub fn verbs() -> impl Iterator<Item = &'static WorkspaceVerb> {
    [workspaces::WORKSPACE_VERBS, files::FILE_VERBS, programs::PROGRAM_VERBS].into_iter().flatten()
}
