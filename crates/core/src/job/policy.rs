//! What a request allows its own program to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::AllowedCommand;

/// What the program may be, receive and leave. Everything not allowed here is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyRequest {
    /// Commands that may be run; an empty list denies all commands.
    pub allowed_commands: Vec<AllowedCommand>,
    /// Variables that `command.env` may set, in addition to those that the runner allows.
    pub allowed_env: Vec<String>,
    /// Whether an allowed command may be a shell, or a program that starts others, such as `env`.
    pub allow_shell: bool,
    /// The network of the program.
    pub network: Network,
    /// Which of its files are kept.
    pub artifacts: ArtifactPatterns,
    /// Controls without which the program must not run.
    pub require_enforced: Vec<ControlName>,
}

/// The network of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Only a private loopback, in its own network namespace.
    #[default]
    None,
    /// The host's: denied.
    Host,
}

/// Which files of the workspace are artifacts. Patterns are anchored at the top of the workspace:
/// `*` and `?` match within a path component, `**` any number of components.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactPatterns {
    /// Files to keep.
    pub include: Vec<String>,
    /// Files among them not to keep.
    pub deny: Vec<String>,
}

/// A control that a request can require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Control")]
pub enum ControlName {
    /// Namespaces for processes, mounts, IPC, host name, network and cgroups.
    Namespaces,
    /// A system-call filter.
    Seccomp,
    /// A memory limit for all processes together.
    Memory,
    /// A limit on processes and threads.
    Processes,
    /// A disk limit.
    Disk,
    /// CPU accounting for all processes together.
    Cpu,
    /// No network.
    Network,
}

impl ControlName {
    /// Its name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Seccomp => "seccomp",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Cpu => "cpu",
            Self::Network => "network",
        }
    }
}

impl Network {
    /// Its name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }
}
