//! The bodies that create and change a workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{LimitsRequest, ProgramLimits, pick};
use crate::config::{RequestRange, RequestRanges};
use crate::egress::rules::NetworkRules;
use crate::egress::secret::Placeholders;
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::values::names::is_variable_name;
use cofferdam_core::{NetworkObject, WorkspacePath};

/// The longest label, bytes.
const LABEL_BYTES_MAX: usize = 256;
/// The least space of a workspace: less is not worth creating, bytes.
pub const ROOM_BYTES_MIN: u64 = 64 << 10;
/// The least number of files and directories of a workspace.
pub const ROOM_INODES_MIN: u64 = 16;

/// The body of `POST /v1/workspaces`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// The client's label.
    pub exec_id: Option<String>,
    /// Whether the live workspace with that label is answered, if there is one.
    pub acquire: Option<bool>,
    /// What has a sandbox of its own.
    pub sandbox: Option<SandboxScope>,
    /// Where sandboxes show it.
    pub path: Option<String>,
    /// What its programs may reach.
    pub network: Option<NetworkObject>,
    /// Its policy.
    pub policy: Option<WorkspacePolicy>,
    /// The most files and directories.
    pub max_inodes: Option<u64>,
    /// The limits of its programs.
    pub limits: Option<LimitsRequest>,
    /// Variables of its programs.
    pub env: Option<BTreeMap<String, String>>,
    /// How long it lives, milliseconds.
    pub ttl_ms: Option<u64>,
    /// How long it lives unused, milliseconds.
    pub idle_ms: Option<u64>,
    /// The snapshot with its files.
    pub snapshot: Option<String>,
    /// Where its artifacts belong.
    pub artifact_session: Option<ArtifactSession>,
}

/// What has a sandbox of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxScope {
    /// Each program.
    #[default]
    Program,
    /// The workspace: its programs share it.
    Workspace,
}

/// `policy` of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspacePolicy {
    /// Whether programs are isolated. They always are.
    pub isolated: Option<bool>,
    /// Whether the workspace outlives its cleanup.
    pub persist: Option<bool>,
    /// Where its files are.
    pub storage: Option<StorageKind>,
    /// The most bytes of its files.
    pub max_disk_bytes: Option<u64>,
}

/// Where the files of a workspace are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageKind {
    /// In memory.
    #[default]
    Memory,
    /// In a sparse image on disk.
    Disk,
}

/// Where the artifacts of a workspace belong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactSession {
    /// The application.
    #[serde(default)]
    pub app: String,
    /// The user.
    #[serde(default)]
    pub user: String,
    /// The session.
    #[serde(default)]
    pub session: String,
}

/// The body of `POST W/snapshot`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Whether the snapshot outlives the service.
    pub persist: Option<bool>,
}

/// The body of `PATCH /v1/workspaces/{id}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchRequest {
    /// How long it lives from now, milliseconds.
    pub ttl_ms: Option<u64>,
    /// How long it lives unused, milliseconds.
    pub idle_ms: Option<u64>,
}

/// What a workspace is created with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSettings {
    /// The client's label.
    pub exec_id: Option<String>,
    /// Whether the live workspace with that label is answered, if there is one.
    pub acquire: bool,
    /// What has a sandbox of its own.
    pub sandbox: SandboxScope,
    /// Where sandboxes show it.
    #[serde(with = "super::shown_path")]
    pub path: WorkspacePath,
    /// Whether it outlives its cleanup and the service.
    pub persist: bool,
    /// Where its files are.
    pub storage: StorageKind,
    /// The most bytes of its files.
    pub disk_bytes: u64,
    /// The most files and directories.
    pub inodes: u64,
    /// The limits of its programs.
    pub limits: ProgramLimits,
    /// Variables of its programs.
    pub env: BTreeMap<String, String>,
    /// How long it lives.
    pub ttl: Duration,
    /// How long it lives unused.
    pub idle: Duration,
    /// The snapshot that it was made of.
    pub snapshot: Option<String>,
    /// Where its artifacts belong.
    pub artifact_session: Option<ArtifactSession>,
    /// What its programs may reach at first.
    #[serde(default)]
    pub network: Option<NetworkObject>,
    /// What stands for the secrets in its variables.
    #[serde(default)]
    pub placeholders: Placeholders,
}

impl CreateRequest {
    /// The settings that the request means, for a workspace with the files of one that has `source`.
    ///
    /// # Errors
    /// The first wrong value, or that the workspace would be too small.
    pub fn resolve(
        self,
        ranges: &RequestRanges,
        source: Option<&WorkspaceSettings>,
    ) -> Result<WorkspaceSettings, EngineError> {
        let policy = self.policy.unwrap_or_default();
        let acquire = self.acquire.unwrap_or_default();
        if acquire && self.exec_id.as_deref().unwrap_or_default().is_empty() {
            return Err(EngineError::invalid("exec_id", "acquire needs a label"));
        }
        check_label("exec_id", self.exec_id.as_deref())?;
        if let Some(ArtifactSession { app, user, session }) = &self.artifact_session {
            check_label("artifact_session.app", Some(app))?;
            check_label("artifact_session.user", Some(user))?;
            check_label("artifact_session.session", Some(session))?;
        }
        let env = self.env.or_else(|| Some(source?.env.clone())).unwrap_or_default();
        check_env("env", &env)?;
        if let Some(network) = &self.network {
            check_network("network.", network, &env)?;
        }
        let limits = source.map_or_else(|| ProgramLimits::default_of(ranges), |from| from.limits);
        let limits = limits.with(self.limits.as_ref(), ranges)?;
        let default = |range: RequestRange, of_source: Option<u64>| RequestRange {
            default: of_source.unwrap_or(range.default),
            ..range
        };
        let disk = default(ranges.disk_bytes, source.map(|from| from.disk_bytes));
        let disk = pick(disk, "policy.max_disk_bytes", policy.max_disk_bytes)?;
        let inodes = default(ranges.inodes, source.map(|from| from.inodes));
        let inodes = pick(inodes, "max_inodes", self.max_inodes)?;
        let path = match (self.path.as_deref(), source) {
            (None, Some(from)) => from.path.clone(),
            (asked, _) => shown_path(asked)?,
        };
        let of_source = |kind: StorageKind| source.map_or(kind, |from| from.storage);
        let settings = WorkspaceSettings {
            exec_id: self.exec_id,
            acquire,
            sandbox: self.sandbox.or_else(|| Some(source?.sandbox)).unwrap_or_default(),
            path,
            persist: policy.persist.unwrap_or_default(),
            storage: policy.storage.unwrap_or_else(|| of_source(StorageKind::default())),
            disk_bytes: disk,
            inodes,
            limits,
            env,
            ttl: Duration::from_millis(pick(ranges.ttl_ms, "ttl_ms", self.ttl_ms)?),
            idle: Duration::from_millis(pick(ranges.idle_ms, "idle_ms", self.idle_ms)?),
            snapshot: self.snapshot,
            artifact_session: self.artifact_session,
            placeholders: self.network.as_ref().map(Placeholders::new_for).unwrap_or_default(),
            network: self.network,
        };
        check_room(disk, inodes)?;
        Ok(settings)
    }
}

/// Checks that a workspace with this much room is of use.
///
/// # Errors
/// It has less than [`ROOM_BYTES_MIN`] or [`ROOM_INODES_MIN`].
pub fn check_room(bytes: u64, inodes: u64) -> Result<(), EngineError> {
    if bytes >= ROOM_BYTES_MIN && inodes >= ROOM_INODES_MIN {
        return Ok(());
    }
    let words = "the workspace would have less than 64 KiB or 16 files";
    let error = EngineError::new(EngineCode::WorkspaceDiskFull, words);
    Err(error.with("bytes", bytes).with("inodes", inodes))
}

/// Checks the variables of the field `path`.
///
/// # Errors
/// The first one that no program can have.
pub fn check_env(path: &str, env: &BTreeMap<String, String>) -> Result<(), EngineError> {
    if let Some(name) = env.keys().find(|name| !is_variable_name(name)) {
        let words = "want names of letters, digits and _, no digit first";
        return Err(EngineError::invalid(path, words).with("key", name.as_str()));
    }
    match env.iter().find(|(_, value)| value.contains('\0')) {
        Some((name, _)) => Err(EngineError::invalid(&format!("{path}.{name}"), "holds a NUL")),
        None => Ok(()),
    }
}

/// Checks the fields of `network`, which are below `path`, for programs with the variables `env`.
///
/// # Errors
/// The first wrong one.
pub fn check_network(
    path: &str,
    network: &NetworkObject,
    env: &BTreeMap<String, String>,
) -> Result<(), EngineError> {
    NetworkRules::check(network)
        .map_err(|fault| EngineError::invalid(&format!("{path}{}", fault.path), fault.words))?;
    match network.secret_env.keys().find(|name| env.contains_key(*name)) {
        Some(name) => {
            Err(EngineError::invalid(&format!("{path}secret_env.{name}"), "is in env too"))
        }
        None => Ok(()),
    }
}

/// Where sandboxes show the workspace.
fn shown_path(asked: Option<&str>) -> Result<WorkspacePath, EngineError> {
    let parsed = asked.map_or_else(|| Ok(WorkspacePath::default()), WorkspacePath::parse);
    parsed.map_err(|error| EngineError::invalid("path", error.to_string()))
}

/// Checks the label in the field `path`.
///
/// # Errors
/// It is too long.
pub fn check_label(path: &str, label: Option<&str>) -> Result<(), EngineError> {
    match label {
        Some(label) if label.len() > LABEL_BYTES_MAX => {
            Err(EngineError::invalid(path, format!("longer than {LABEL_BYTES_MAX} bytes")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges() -> RequestRanges {
        let range = |default, max| RequestRange { default, max };
        RequestRanges {
            disk_bytes: range(1 << 20, 1 << 22),
            inodes: range(100, 1000),
            ttl_ms: range(1000, 5000),
            idle_ms: range(100, 500),
            run_timeout_ms: range(10, 20),
            session_timeout_ms: range(10, 20),
            memory_mb: range(768, 2048),
            pids: range(256, 1024),
            output_bytes: range(10, 20),
        }
    }

    #[test]
    fn an_empty_request_gets_the_defaults() {
        let settings = CreateRequest::default().resolve(&ranges(), None).unwrap();
        assert_eq!((settings.disk_bytes, settings.inodes), (1 << 20, 100));
        assert_eq!(settings.ttl, Duration::from_secs(1));
        assert_eq!(settings.idle, Duration::from_millis(100));
        assert_eq!((settings.path.is_usual(), settings.acquire), (true, false));
        assert_eq!(settings.storage, StorageKind::Memory);
    }

    #[test]
    fn a_wrong_value_is_named() {
        let policy = |policy| CreateRequest { policy: Some(policy), ..Default::default() };
        let session = ArtifactSession { user: "u".repeat(257), ..Default::default() };
        let env = |name: &str, value: &str| {
            let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            CreateRequest { env: Some(env), ..Default::default() }
        };
        for (request, path) in [
            (CreateRequest { exec_id: Some("e".repeat(257)), ..Default::default() }, "exec_id"),
            (CreateRequest { acquire: Some(true), ..Default::default() }, "exec_id"),
            (
                policy(WorkspacePolicy { max_disk_bytes: Some(1 << 40), ..Default::default() }),
                "policy.max_disk_bytes",
            ),
            (CreateRequest { ttl_ms: Some(5001), ..Default::default() }, "ttl_ms"),
            (CreateRequest { idle_ms: Some(501), ..Default::default() }, "idle_ms"),
            (CreateRequest { max_inodes: Some(1001), ..Default::default() }, "max_inodes"),
            (CreateRequest { path: Some("/etc".into()), ..Default::default() }, "path"),
            (
                CreateRequest { artifact_session: Some(session), ..Default::default() },
                "artifact_session.user",
            ),
            (env("A=", "x"), "env"),
            (env("A", "x\0"), "env.A"),
        ] {
            let error = request.resolve(&ranges(), None).unwrap_err();
            assert_eq!(error.code, EngineCode::InvalidRequest, "{path}");
            assert_eq!(error.details["path"], path, "{error}");
        }
    }

    #[test]
    fn a_workspace_without_room_is_not_created() {
        for (bytes, inodes, fits) in
            [(65_536, 16, true), (65_535, 16, false), (65_536, 15, false), (0, 0, true)]
        {
            let policy = WorkspacePolicy { max_disk_bytes: Some(bytes), ..Default::default() };
            let request = CreateRequest {
                policy: Some(policy),
                max_inodes: Some(inodes),
                ..Default::default()
            };
            let code = request.resolve(&ranges(), None).map(drop).map_err(|error| error.code);
            let expected = if fits { Ok(()) } else { Err(EngineCode::WorkspaceDiskFull) };
            assert_eq!(code, expected, "{bytes} {inodes}");
        }
    }
}
