//! What an input names.

use super::request::InputSpec;
use super::stores::EngineStores;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::error::engine_error;
use crate::workspace::helpers::constants::DIR_SKILLS;
use crate::workspace::helpers::parse_artifact_ref;
use cofferdam_tree::files::{FileLocation, FilesError, HostEntry, WorkspaceRoot};

const ARTIFACT: &str = "artifact://";
const HOST: &str = "host://";
const WORKSPACE: &str = "workspace://";
const SKILL: &str = "skill://";
/// The longest name of an input, bytes: a scheme and a path.
const FROM_BYTES_MAX: usize = 4096 + 16;

/// What an input names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedInput {
    /// An artifact; of its newest version if none is named.
    Artifact {
        /// The name.
        name: String,
        /// The version.
        version: Option<u64>,
    },
    /// A file or directory of the host, by its absolute path.
    Host(String),
    /// A file or directory of the workspace, by the path rule.
    Workspace(String),
    /// A file or directory of a skill in the workspace: the name of the skill, and the path in it.
    Skill(String, String),
}

impl NamedInput {
    /// What `from` names.
    ///
    /// # Errors
    /// It has no known scheme, or is malformed.
    pub fn parse(from: &str) -> Result<Self, EngineError> {
        if from.len() > FROM_BYTES_MAX {
            let words = format!("more than {FROM_BYTES_MAX} bytes");
            return Err(EngineError::new(EngineCode::InvalidRequest, words));
        }
        if let Some(reference) = from.strip_prefix(ARTIFACT) {
            let (name, version) = parse_artifact_ref(reference)?;
            return Ok(Self::Artifact { name, version });
        }
        if let Some(path) = from.strip_prefix(HOST).filter(|path| path.starts_with('/')) {
            return Ok(Self::Host(path.to_owned()));
        }
        if let Some(path) = from.strip_prefix(WORKSPACE) {
            return Ok(Self::Workspace(path.to_owned()));
        }
        if let Some(path) = from.strip_prefix(SKILL) {
            let (name, below) = path.split_once('/').unwrap_or((path, ""));
            if matches!(name, "" | "." | "..") {
                let words = "want skill://name/path";
                return Err(EngineError::new(EngineCode::PathEscape, words));
            }
            return Ok(Self::Skill(name.to_owned(), below.to_owned()));
        }
        let words = "want artifact://name, host:///path, workspace://path or skill://name/path";
        Err(EngineError::new(EngineCode::InputUnsupported, words))
    }

    /// Where the input goes that names no place.
    pub fn place(&self) -> String {
        let path = match self {
            Self::Artifact { name, .. } => name,
            Self::Host(path) | Self::Workspace(path) => path,
            Self::Skill(name, below) if below.trim_matches('/').is_empty() => name,
            Self::Skill(_, below) => below,
        };
        let base = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        format!("work/inputs/{base}")
    }

    /// The path in the workspace that the source is, if it is one, and its location.
    ///
    /// # Errors
    /// It leads out of the workspace, or out of the skill.
    pub fn location(
        &self,
        root: &WorkspaceRoot<'_>,
    ) -> Result<Option<(String, FileLocation)>, EngineError> {
        match self {
            Self::Artifact { .. } | Self::Host(_) => Ok(None),
            Self::Workspace(path) => {
                let location = root.locate(path).map_err(engine_error)?;
                Ok(Some((location.shown().display().to_string(), location)))
            }
            Self::Skill(name, below) => {
                let skill = root.locate(format!("{DIR_SKILLS}/{name}")).map_err(engine_error)?;
                let location = root.locate(format!("{DIR_SKILLS}/{name}/{below}"));
                let location = location.map_err(engine_error)?;
                if !location.lies_in(&skill) {
                    let words = "the path leaves the skill";
                    return Err(EngineError::new(EngineCode::PathEscape, words));
                }
                Ok(Some((location.shown().display().to_string(), location)))
            }
        }
    }
}

/// Opens a file or directory of the host by its absolute path.
///
/// # Errors
/// The path lies in no root, has a link on it, or does not exist.
pub fn open_host(stores: &EngineStores, path: &str) -> Result<HostEntry, EngineError> {
    let denied = |words: &str| EngineError::new(EngineCode::InputHostDenied, words);
    stores.host_roots.entry(path).map_err(|error| match error {
        FilesError::PathEscape { .. } | FilesError::PathTooLong { .. } => {
            denied("the path lies in no directory that the operator allows (ENGINE_HOST_ROOTS)")
        }
        FilesError::ThroughLink { .. } => denied("there is a link on the path"),
        FilesError::NotFound { .. } => missing(),
        FilesError::Io { .. } => denied("the service cannot open it"),
        error => engine_error(error),
    })
}

/// The path of the host that `src` of a directory names.
///
/// # Errors
/// It names something else.
pub fn host_path(src: &str) -> Result<String, EngineError> {
    match NamedInput::parse(src) {
        Ok(NamedInput::Host(path)) => Ok(path),
        _ => Err(EngineError::new(EngineCode::InputUnsupported, "src: want host:///path")),
    }
}

/// The error of an input that is not there.
pub fn missing() -> EngineError {
    EngineError::new(EngineCode::InputNotFound, "the input is not found")
}

/// Whether an input is to be a link, if its source can be linked to.
///
/// # Errors
/// The mode is neither `link` nor `copy`.
pub fn wants_link(spec: &InputSpec) -> Result<bool, EngineError> {
    match spec.mode.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "copy") => Ok(false),
        Some("link") => Ok(true),
        Some(_) => Err(EngineError::new(EngineCode::InvalidRequest, "want link or copy")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_one_of_four_schemes_and_a_place_of_its_own() {
        let artifact = |name: &str, version| NamedInput::Artifact { name: name.into(), version };
        let host = |path: &str| NamedInput::Host(path.into());
        let workspace = |path: &str| NamedInput::Workspace(path.into());
        let skill = |name: &str, below: &str| NamedInput::Skill(name.into(), below.into());
        for (from, source, place) in [
            ("artifact://a.txt", artifact("a.txt", None), "work/inputs/a.txt"),
            ("artifact://d/a.txt@3", artifact("d/a.txt", Some(3)), "work/inputs/a.txt"),
            ("artifact://a@b", artifact("a@b", None), "work/inputs/a@b"),
            ("host:///srv/x/", host("/srv/x/"), "work/inputs/x"),
            ("workspace://out/a", workspace("out/a"), "work/inputs/a"),
            ("skill://pdf/scripts/run.sh", skill("pdf", "scripts/run.sh"), "work/inputs/run.sh"),
            ("skill://pdf", skill("pdf", ""), "work/inputs/pdf"),
            ("skill://pdf/", skill("pdf", ""), "work/inputs/pdf"),
        ] {
            let parsed = NamedInput::parse(from).unwrap();
            assert_eq!((parsed.place().as_str(), parsed), (place, source), "{from}");
        }
        for (from, code) in [
            ("", EngineCode::InputUnsupported),
            ("a.txt", EngineCode::InputUnsupported),
            ("http://h/x", EngineCode::InputUnsupported),
            ("file:///etc/passwd", EngineCode::InputUnsupported),
            ("host://srv/x", EngineCode::InputUnsupported),
            ("ARTIFACT://a", EngineCode::InputUnsupported),
            ("artifact://", EngineCode::InvalidRequest),
            ("artifact://a@9223372036854775808", EngineCode::InvalidRequest),
            (&format!("host:///{}", "/".repeat(4200)), EngineCode::InvalidRequest),
            ("skill://", EngineCode::PathEscape),
            ("skill:///x", EngineCode::PathEscape),
            ("skill://../x", EngineCode::PathEscape),
        ] {
            assert_eq!(NamedInput::parse(from).unwrap_err().code, code, "{from}");
        }
    }
}
