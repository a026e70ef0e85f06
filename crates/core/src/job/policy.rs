//! What a request allows its own program.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::AllowedCommand;

/// What the program may be, get and leave. What is not allowed here is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyRequest {
    /// Commands that may be run; none denies everything.
    pub allowed_commands: Vec<AllowedCommand>,
    /// Variables of `command.env` that may be given, beside those the runner allows.
    pub allowed_env: Vec<String>,
    /// Whether an allowed command may be a shell, or a program that starts others, such as `env`.
    pub allow_shell: bool,
    /// The network it has.
    pub network: Network,
    /// What is kept of the files it leaves.
    pub artifacts: ArtifactPatterns,
    /// Controls without which it is not to run at all.
    pub require_enforced: Vec<Control>,
}

/// The network of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// None but a loopback of its own, by a network namespace.
    #[default]
    None,
    /// The host's: denied.
    Host,
}

/// Which files of the workspace are artifacts, by patterns anchored at its top:
/// `*` and `?` stay within a part, `**` spans parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactPatterns {
    /// Files to keep.
    pub include: Vec<String>,
    /// Of those, files not to keep.
    pub deny: Vec<String>,
}

/// A control that can be asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Processes, mounts, IPC, host name, network and cgroups apart.
    Namespaces,
    /// System calls filtered.
    Seccomp,
    /// Memory bounded for all processes together.
    Memory,
    /// Processes and threads bounded.
    Processes,
    /// Disk bounded.
    Disk,
    /// CPU time accounted for all processes together.
    Cpu,
    /// No network.
    Network,
}

impl Control {
    /// Its word on the wire.
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
    /// Its word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }
}
