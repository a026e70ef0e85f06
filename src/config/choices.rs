//! What the configuration chooses from, and the words for it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::parse::parse_address;
use super::table;

/// Which workspace a request runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceChoice {
    /// Every slug uses this directory.
    Single(PathBuf),
    /// Each slug uses the directory of its name below this one.
    PerLanguage(PathBuf),
    /// Neither is configured: `./langs` per language if it exists, else `.` for all.
    Unset,
}

/// What happens to a run whose client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDisconnect {
    /// It is killed.
    #[default]
    Kill,
    /// It runs to its end.
    Finish,
}

/// Where `GET /metrics` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricsPlace {
    /// On the port of `/run`.
    #[default]
    SamePort,
    /// Nowhere.
    Off,
    /// On a separate listener.
    Own(SocketAddr),
}

/// What to do on a host that cannot enforce everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Omit what the host lacks, and say so.
    #[default]
    Best,
    /// Refuse to start.
    Strict,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Words for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

impl OnDisconnect {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "kill" => Some(Self::Kill),
            "finish" => Some(Self::Finish),
            _ => None,
        }
    }
}

impl MetricsPlace {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::SamePort),
            "off" => Some(Self::Off),
            address => parse_address(address).map(Self::Own),
        }
    }
}

impl Isolation {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "best" => Some(Self::Best),
            "strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

impl LogFormat {
    /// The variable that chooses it.
    pub const VARIABLE: &'static str = table::LOG_FORMAT.name;

    /// The format of that name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}
