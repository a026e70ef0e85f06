//! The file systems of evaluations: the repository with what is installed for it, frozen once, and a
//! writable copy for each phase.

mod phase_tree;
mod prepared_tree;
mod roots;
pub mod session_base;

pub use phase_tree::{
    AGENT, EvaluationTrees, FrozenFiles, LOGS, PhaseTree, ShownDirectory, TMP, WORKSPACE,
};
pub use prepared_tree::PreparedTree;
pub use roots::{EvaluationRoot, EvaluationRoots, RootError, RootOpener};
