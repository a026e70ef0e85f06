//! Requests that stage.

use serde::Deserialize;

/// The body of `POST W/stage`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageInputsRequest {
    /// The inputs.
    pub inputs: Vec<InputSpec>,
}

/// One input, and where it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSpec {
    /// What is staged: `artifact://name[@version]`, `host:///path`, `workspace://path` or `skill://name/path`.
    pub from: String,
    /// Its place, by the path rule; `work/inputs/` and the last name of `from` if none.
    pub to: Option<String>,
    /// `link` or `copy`, which is the default.
    pub mode: Option<String>,
    /// Whether an artifact without a version keeps the one that was staged to this place before.
    pub pin: Option<bool>,
}

/// The body of `POST W/stage-directory`, or its query besides an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageDirectoryRequest {
    /// A directory of the host, as `host:///path`.
    pub src: Option<String>,
    /// The digest of a stored skill.
    pub digest: Option<String>,
    /// Its place, by the path rule.
    pub to: String,
    /// Whether no program can change it.
    pub read_only: Option<bool>,
    /// Whether a read-only directory may be a mount of one copy for all workspaces.
    pub allow_mount: Option<bool>,
}
