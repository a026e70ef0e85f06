//! The file systems of workspaces: what the registry needs of them, and those of this host.

mod doors;
mod host;
mod lasting;
mod maker;
mod mounting;
mod read_only;
pub(super) mod snapshots;

pub use doors::{LoneTree, SharedTree, TreeDoors};
pub use host::HostTrees;
#[cfg(test)]
pub use maker::ReadCall;
pub use maker::{
    ForkKind, FrozenTree, LastingSandbox, PlainProgram, TreeMaker, TreeSandbox, TreeSettings,
    TreeUsage, WorkspaceTree,
};
pub use mounting::{begin_tree, mount_again, mount_at};
pub use read_only::{FoundTree, KeptTree};
