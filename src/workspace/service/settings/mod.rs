//! What a workspace service is started with.

mod host_memory;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::host_memory::memory_bytes;
use crate::config::{EngineConfig, EngineMaxima, RequestRanges, TokenMaxima};
use crate::egress::ServiceEgress;
use crate::workspace::disk::LazyEngineDir;
use crate::workspace::service::live::network::NetworkTerms;

/// How long a service lets interrupted code go on.
const INTERRUPT_WAIT: Duration = Duration::from_secs(1);

/// What a workspace service is started with.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// How much of everything there may be.
    pub maxima: EngineMaxima,
    /// What one token may have.
    pub per_token: TokenMaxima,
    /// The defaults and maxima of requests.
    pub requests: RequestRanges,
    /// The most bytes of all workspaces in memory.
    pub disk_total_bytes: u64,
    /// How long the record of an ended session is kept.
    pub session_keep: Duration,
    /// How long interrupted code may go on before its kernel is killed.
    pub interrupt_wait: Duration,
    /// Variables of every program.
    pub base_env: BTreeMap<String, String>,
    /// Where workspaces and snapshots are kept; none if the service keeps nothing.
    pub store: Option<Arc<LazyEngineDir>>,
    /// What programs may reach at most.
    pub network: NetworkTerms,
    /// How long a parked workspace is kept.
    pub parked_keep: Duration,
    /// How soon a change of a workspace that is kept is saved.
    pub save_every: Duration,
}

impl From<&EngineConfig> for EngineSettings {
    fn from(config: &EngineConfig) -> Self {
        let EngineConfig { maxima, per_token, requests, times, network, .. } = config;
        Self {
            maxima: maxima.clone(),
            per_token: *per_token,
            requests: *requests,
            session_keep: times.session_keep,
            interrupt_wait: INTERRUPT_WAIT,
            base_env: BTreeMap::new(),
            store: None,
            network: NetworkTerms {
                hosts: network.hosts.clone(),
                egress: network.terms(&ServiceEgress::default()),
            },
            parked_keep: times.parked_keep,
            save_every: times.save_every,
            disk_total_bytes: maxima.disk_total_bytes.unwrap_or_else(|| memory_bytes() / 2),
        }
    }
}
