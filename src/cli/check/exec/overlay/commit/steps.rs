//! The steps of a commit, as plans make them and journals hold them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::cli::check::exec::overlay::states::{NodeKind, NodeState};

/// A path as JSON has it: in base64, since its bytes need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RawPath(pub Vec<u8>);

impl From<RawPath> for String {
    fn from(path: RawPath) -> Self {
        STANDARD.encode(path.0)
    }
}

impl TryFrom<String> for RawPath {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self)
    }
}

/// What was at a path when the commit began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasState {
    pub kind: NodeKind,
    pub inode: u64,
    pub bytes: u64,
    pub modified: (i64, i64),
}

impl From<NodeState> for WasState {
    fn from(state: NodeState) -> Self {
        let NodeState { kind, bytes, modified, .. } = state;
        Self { kind, inode: state.identity.1, bytes, modified }
    }
}

/// One step of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStep {
    pub path: RawPath,
    pub action: StepAction,
}

/// What is done at the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepAction {
    Remove { was: WasState },
    RemoveDirectory,
    MakeDirectory { uid: u32, gid: u32 },
    Place { staged: usize, was: Option<WasState> },
    SetAttributes { mode: Option<u32>, modified: Option<(i64, i64)>, was: Option<WasState> },
}
