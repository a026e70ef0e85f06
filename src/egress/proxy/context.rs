//! What the connections of one proxy share.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::Resumption;
use tokio::sync::Semaphore;

use crate::egress::log::EgressLog;
use crate::egress::policy::EgressPolicy;
use crate::egress::resolver::Lookups;
use crate::egress::roots::UpstreamRoots;
use crate::egress::trust::{SandboxTrust, fast_provider};

/// What is spoken to hosts, the best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Sessions of TLS that are kept to be resumed.
const SESSIONS_MAX: usize = 32;

/// The limits of one proxy.
#[derive(Debug, Clone, Copy)]
pub struct ProxyLimits {
    /// Connections of programs.
    pub connections_max: usize,
    /// Requests at once to hosts with rules.
    pub requests_max: usize,
    /// How long a name may take to be resolved.
    pub resolve_within: Duration,
    /// How long a connection to a host may take.
    pub connect_within: Duration,
    /// How long a connection may be without a byte. A request's head has to be there within it.
    pub idle_max: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            requests_max: 64,
            resolve_within: Duration::from_secs(10),
            connect_within: Duration::from_secs(10),
            idle_max: Duration::from_secs(60),
        }
    }
}

/// How hosts prove who they are. Made when it is first needed.
#[derive(Debug)]
pub struct UpstreamTls {
    roots: UpstreamRoots,
    any_version: OnceLock<Arc<ClientConfig>>,
    http1_only: OnceLock<Arc<ClientConfig>>,
}

impl UpstreamTls {
    pub fn new(roots: UpstreamRoots) -> Self {
        Self { roots, any_version: OnceLock::new(), http1_only: OnceLock::new() }
    }

    /// How TLS is spoken to a host. With `http1_only` HTTP/2 is not offered.
    ///
    /// # Errors
    /// The library lacks a version of TLS.
    pub fn config(&self, http1_only: bool) -> Result<Arc<ClientConfig>, rustls::Error> {
        let (known, protocols) = match http1_only {
            true => (&self.http1_only, &PROTOCOLS[1..]),
            false => (&self.any_version, &PROTOCOLS[..]),
        };
        if let Some(config) = known.get() {
            return Ok(Arc::clone(config));
        }
        let mut config = ClientConfig::builder_with_provider(fast_provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.store())
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Those of one proxy alone, so that no sandbox resumes another's session.
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(Arc::clone(known.get_or_init(|| Arc::new(config))))
    }
}

/// What the connections of one proxy share.
pub struct ProxyContext {
    pub policy: EgressPolicy,
    pub log: Arc<EgressLog>,
    pub limits: ProxyLimits,
    pub lookups: Lookups,
    /// The places of requests to hosts with rules.
    pub requests: Arc<Semaphore>,
    /// By whose certificates the proxy speaks for hosts with rules.
    pub trust: Arc<SandboxTrust>,
    pub tls: UpstreamTls,
    /// Whether records have paths.
    pub keeps_paths: bool,
}

impl fmt::Debug for ProxyContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProxyContext").finish_non_exhaustive()
    }
}
