//! What a request allows its own program to do.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::command::AllowedCommand;
use crate::NetworkObject;

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

/// The network of a job: a word, or an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Only a private loopback, in its own network namespace.
    #[default]
    None,
    /// The host's: denied.
    Host,
    /// A private loopback, on which a proxy lets some hosts be reached.
    Allow(NetworkObject),
}

impl Network {
    /// Its name in JSON, if it is a word.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::None => Some("none"),
            Self::Host => Some("host"),
            Self::Allow(_) => None,
        }
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Allow(network) => network.serialize(serializer),
            Self::None | Self::Host => self.word().serialize(serializer),
        }
    }
}

/// By hand: the errors of an untagged enum do not name the path.
impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworkVisitor)
    }
}

struct NetworkVisitor;

impl<'de> Visitor<'de> for NetworkVisitor {
    type Value = Network;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("`none`, `host`, or an object with the key `allow`")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Network, E> {
        match word {
            "none" => Ok(Network::None),
            "host" => Ok(Network::Host),
            other => Err(E::unknown_variant(other, &["none", "host"])),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Network, A::Error> {
        NetworkObject::deserialize(MapAccessDeserializer::new(map)).map(Network::Allow)
    }
}

impl JsonSchema for Network {
    fn schema_name() -> Cow<'static, str> {
        "Network".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let object = generator.subschema_for::<NetworkObject>();
        json_schema!({
            "description": "The network of a job.",
            "anyOf": [
                {
                    "type": "string", "enum": ["none"],
                    "description": "Only a private loopback, in its own network namespace.",
                },
                {"type": "string", "enum": ["host"], "description": "The host's: denied."},
                object,
            ],
        })
    }
}
