//! The engine, for clients that choose one.

use serde::Serialize;

use crate::config::{EngineMaxima, RequestRange, TokenMaxima};
use crate::workspace::kernels::KernelLanguage;
use crate::workspace::service::settings::EngineSettings;
use crate::workspace::trees::ForkKind;

/// What surrounds a block of code in a model's text.
const BLOCK_DELIMITER: &str = "```";

/// What the engine can do, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineView {
    /// What engines of any kind tell.
    #[serde(flatten)]
    pub capabilities: EngineCapabilities,
    interactive: bool,
    contexts: Vec<&'static str>,
    maxima: MaximaView,
    fork: ForkKind,
    code_block_delimiter: DelimiterView,
}

/// What an engine can do, for clients that choose one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EngineCapabilities {
    /// How programs are isolated: `sandbox`; empty if the engine does not tell.
    pub isolation: &'static str,
    /// Whether programs can have a network.
    pub network_allowed: bool,
    /// Whether directories can be mounted read-only.
    pub read_only_mount: bool,
    /// Whether output arrives while a program runs.
    pub streaming: bool,
    /// The most bytes of a workspace.
    pub max_disk_bytes: u64,
}

/// The largest value of everything that a request may name, and how much there may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct MaximaView {
    workspaces: usize,
    runs: usize,
    kernels: usize,
    sessions: usize,
    contexts: usize,
    snapshots: usize,
    token_workspaces: Option<usize>,
    token_runs: Option<usize>,
    token_disk_bytes: Option<u64>,
    disk_total_bytes: u64,
    disk_bytes: u64,
    inodes: u64,
    ttl_ms: u64,
    idle_ms: u64,
    run_timeout_ms: u64,
    session_timeout_ms: u64,
    memory_mb: u64,
    pids: u64,
    output_bytes: u64,
    input_bytes: u64,
    artifact_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct DelimiterView {
    start: &'static str,
    end: &'static str,
}

impl EngineView {
    /// The engine with these settings.
    pub fn of(settings: &EngineSettings, fork: ForkKind, can_mount: bool) -> Self {
        let EngineSettings { maxima, per_token, requests, disk_total_bytes, .. } = settings;
        let EngineMaxima { workspaces, runs, kernels, sessions, contexts, snapshots, .. } = *maxima;
        let TokenMaxima { workspaces: token_workspaces, runs: token_runs, disk_bytes } = *per_token;
        let max = |range: RequestRange| range.max;
        Self {
            capabilities: EngineCapabilities {
                isolation: "sandbox",
                network_allowed: !settings.network.hosts.is_empty(),
                read_only_mount: can_mount,
                streaming: true,
                max_disk_bytes: requests.disk_bytes.max,
            },
            interactive: true,
            contexts: KernelLanguage::ALL.map(KernelLanguage::word).into(),
            maxima: MaximaView {
                workspaces,
                runs,
                kernels,
                sessions,
                contexts,
                snapshots,
                token_workspaces,
                token_runs,
                token_disk_bytes: disk_bytes,
                disk_total_bytes: *disk_total_bytes,
                disk_bytes: max(requests.disk_bytes),
                inodes: max(requests.inodes),
                ttl_ms: max(requests.ttl_ms),
                idle_ms: max(requests.idle_ms),
                run_timeout_ms: max(requests.run_timeout_ms),
                session_timeout_ms: max(requests.session_timeout_ms),
                memory_mb: max(requests.memory_mb),
                pids: max(requests.pids),
                output_bytes: max(requests.output_bytes),
                input_bytes: maxima.input_bytes,
                artifact_bytes: maxima.artifact_bytes,
            },
            fork,
            code_block_delimiter: DelimiterView { start: BLOCK_DELIMITER, end: BLOCK_DELIMITER },
        }
    }
}
