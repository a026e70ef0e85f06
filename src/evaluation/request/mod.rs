//! What an evaluation is asked for, by HTTP, by a batch and by the command line alike.

mod language;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use cofferdam_core::NetworkObject;

pub use self::language::AgentLanguage;

/// One evaluation that is asked for. Its fields are valid in themselves; whether the host can serve them is
/// decided later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluationRequest {
    /// Where the task is.
    pub task: TaskPlace,
    /// What is graded.
    pub work: EvaluatedWork,
    /// The longest that the agent may run; AGENT_TIMEOUT_SECS if `None`.
    pub timeout: Option<Duration>,
    /// Variables that only the agent sees.
    pub agent_env: BTreeMap<String, String>,
    /// What the agent may reach; the service's default if `None`.
    pub agent_network: Option<NetworkObject>,
    /// Commands that install what the agent needs.
    pub agent_install: Vec<String>,
    /// The name of a root file system below EVAL_ROOTFS_DIR; the service's own if `None`.
    pub rootfs: Option<String>,
    /// What a limit of the agent means.
    pub on_agent_limit: AgentLimitRule,
    /// Whether nothing that was kept is used.
    pub fresh: bool,
    /// What the client calls it.
    pub labels: BTreeMap<String, String>,
}

/// Where a task is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskPlace {
    /// An archive at a URL of http or https.
    Url {
        /// The URL, which [`crate::evaluation::web_url::WebUrl`] accepts.
        url: String,
        /// The digest that the archive has to have, 64 hexadecimal digits in lower case.
        sha256: Option<String>,
    },
    /// An archive on this host. Only the command line names one.
    Archive(PathBuf),
    /// A directory on this host. Only the command line names one.
    Directory(PathBuf),
}

/// What is graded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluatedWork {
    /// What this program does.
    Agent {
        /// Its source.
        code: Vec<u8>,
        /// Its language.
        language: AgentLanguage,
    },
    /// A ready patch, as if an agent had made it.
    Patch(Vec<u8>),
    /// The task's own solution: if it does not apply, the task is at fault.
    Oracle(Vec<u8>),
    /// What the task's own solution does, a program for bash. It sees the task's directory `solution`.
    OracleScript(Vec<u8>),
    /// Nothing is changed.
    Nothing,
}

impl EvaluatedWork {
    /// The language of the program that works, if there is one.
    pub fn language(&self) -> Option<AgentLanguage> {
        match self {
            Self::Agent { language, .. } => Some(*language),
            Self::OracleScript(_) => Some(AgentLanguage::Shell),
            Self::Patch(_) | Self::Oracle(_) | Self::Nothing => None,
        }
    }
}

/// What it means that a limit ends the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentLimitRule {
    /// The evaluation ends.
    #[default]
    Stop,
    /// What the agent did so far is graded.
    Grade,
}
