//! What one sandbox may reach, and how that is served.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::counts::EgressCounts;
use super::environment::{proxy_environment, proxy_files, ruled_environment};
use super::hosts::allow_list::AllowList;
use super::hosts::literal::AskedHost;
use super::log::EgressLog;
use super::policy::EgressPolicy;
use super::proxy::{EgressProxy, ProxyTerms, is_of_this_host};
use super::roots::UpstreamRoots;
use super::rules::check::WithheldValues;
use super::rules::fault::NetworkDenial;
use super::rules::live::LiveNetwork;
use super::rules::network::NetworkRules;
use super::secret::placeholder::Placeholders;
use super::secret::service::ServiceSecrets;
use super::trust::{SandboxTrust, trust_environment, trust_store_option};
use cofferdam_core::egress::{EgressReason, EgressRecord};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{EGRESS_PORT, EgressService, NetworkObject, RootFile};

/// The loopback, which programs reach by themselves unless it is allowed.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The variable with Java's options.
const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// What holds for all that programs of one kind may reach.
#[derive(Debug, Clone, Default)]
pub struct EgressTerms {
    /// Hosts whose address need not be public.
    pub private_hosts: AllowList,
    /// What it has in common with all others of the service.
    pub service: ServiceEgress,
    /// Bytes that the programs with one log may send and receive together.
    pub bytes_max: u64,
    /// What hosts with rules are verified by.
    pub roots: UpstreamRoots,
    /// Whether records have the paths of requests to hosts with rules.
    pub log_paths: bool,
}

/// What holds for all that the programs of one service may reach. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct ServiceEgress {
    /// The addresses that the service listens on, which no program reaches.
    own_addresses: Arc<Mutex<Vec<SocketAddr>>>,
    counts: Arc<EgressCounts>,
    secrets: ServiceSecrets,
}

/// The network of one sandbox, or of all of a workspace. Clones are the same one.
#[derive(Debug, Clone)]
pub struct SandboxNetwork {
    /// What it lets be reached now.
    pub live: Arc<LiveNetwork>,
    /// Variables that hold placeholders of secrets.
    pub variables: BTreeMap<String, String>,
    /// Whom its programs trust, so that requests to hosts with rules can be judged.
    trust: Arc<SandboxTrust>,
}

/// What one sandbox may reach, and what it has asked for. Clones are the same one.
#[derive(Debug, Clone)]
pub struct EgressGrant(Arc<GrantedEgress>);

#[derive(Debug, Clone)]
struct GrantedEgress {
    policy: EgressPolicy,
    log: Arc<EgressLog>,
    variables: BTreeMap<String, String>,
    trust: Arc<SandboxTrust>,
    /// Whether the sandbox outlives its network's rules, so that it shows the files of trust before there are any.
    is_lasting: bool,
    roots: UpstreamRoots,
    log_paths: bool,
}

impl SandboxNetwork {
    fn new(live: LiveNetwork, variables: BTreeMap<String, String>) -> Self {
        let live = Arc::new(live);
        let trust = Arc::new(SandboxTrust::new(Arc::clone(&live)));
        Self { live, variables, trust }
    }

    /// Lets `rules` hold from now on. Where they name other hosts, programs that begin later trust a new
    /// authority, and those that have read the old one do not.
    ///
    /// # Errors
    /// The authority cannot be made, or its files cannot be written.
    pub fn replace(&self, rules: Arc<NetworkRules>) -> io::Result<()> {
        self.live.replace(rules);
        self.trust.refresh()
    }
}

impl ServiceEgress {
    /// Adds an address that the service listens on.
    pub fn add_own_address(&self, address: SocketAddr) {
        self.own_addresses.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }

    fn own_addresses(&self) -> Vec<SocketAddr> {
        self.own_addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The secrets that requests may name.
    pub fn secrets(&self) -> &ServiceSecrets {
        &self.secrets
    }

    /// Counts all requests.
    pub fn counts(&self) -> &Arc<EgressCounts> {
        &self.counts
    }
}

impl EgressTerms {
    /// A log for the requests of one job or workspace.
    pub fn log(&self) -> Arc<EgressLog> {
        EgressLog::new(Arc::clone(self.service.counts()))
    }

    /// Reads `object` for the holder of `token`.
    ///
    /// # Errors
    /// A wrong field, or a secret that the holder may not use.
    pub fn network(
        &self,
        object: &NetworkObject,
        token: &str,
        placeholders: &Placeholders,
        withheld: WithheldValues,
    ) -> Result<SandboxNetwork, NetworkDenial> {
        let secrets = self.service.secrets();
        let rules = NetworkRules::resolve(object, secrets, token, placeholders, withheld)?;
        let variables = placeholders.environment(object);
        Ok(SandboxNetwork::new(LiveNetwork::new(Arc::new(rules)), variables))
    }

    /// Lets one sandbox reach what `network` allows. What it asks for is recorded in `log`, with `step`.
    pub fn grant(
        &self,
        network: SandboxNetwork,
        log: Arc<EgressLog>,
        step: Option<String>,
    ) -> EgressGrant {
        let SandboxNetwork { live, variables, trust } = network;
        let policy = EgressPolicy {
            network: live,
            private_hosts: self.private_hosts.clone(),
            own_addresses: self.service.own_addresses(),
            bytes_max: self.bytes_max,
            step,
        };
        let (roots, log_paths, is_lasting) = (self.roots.clone(), self.log_paths, false);
        EgressGrant(Arc::new(GrantedEgress {
            policy,
            log,
            variables,
            trust,
            is_lasting,
            roots,
            log_paths,
        }))
    }
}

impl EgressTerms {
    /// Decides whether the service itself may connect to `address` for a request that names `host`.
    ///
    /// # Errors
    /// Why not.
    pub fn judge_address(&self, host: &str, address: SocketAddr) -> Result<(), EgressReason> {
        let policy = EgressPolicy {
            network: Arc::new(AllowList::default().into()),
            private_hosts: self.private_hosts.clone(),
            own_addresses: self.service.own_addresses(),
            bytes_max: self.bytes_max,
            step: None,
        };
        let host = AskedHost::parse(host).ok_or(EgressReason::BadRequest)?;
        if matches!(host, AskedHost::Numeric(_)) {
            return Err(EgressReason::Literal);
        }
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        policy.judge_address(&host, address, is_of_this_host)
    }
}

impl EgressGrant {
    /// What serves the socket of the sandbox.
    pub fn service(&self) -> Arc<dyn EgressService> {
        Arc::clone(&self.0) as Arc<dyn EgressService>
    }

    /// The same with other variables for programs that begin now.
    #[must_use]
    pub fn with_variables(&self, variables: BTreeMap<String, String>) -> Self {
        Self(Arc::new(GrantedEgress { variables, ..(*self.0).clone() }))
    }

    /// The same for a sandbox in which programs begin after the network was replaced.
    #[must_use]
    pub fn lasting(&self) -> Self {
        Self(Arc::new(GrantedEgress { is_lasting: true, ..(*self.0).clone() }))
    }

    /// The variables that name the proxy and whom programs trust, and those with placeholders.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let proxy = proxy_environment(EGRESS_PORT, self.0.allows_loopback()).into_iter();
        let mut variables: BTreeMap<String, String> = proxy.collect();
        if self.0.trust.is_needed() {
            variables.extend(trust_environment());
            variables.extend(ruled_environment());
            let java = variables.entry(JAVA_VARIABLE.to_owned()).or_default();
            *java = format!("{java} {}", trust_store_option());
        }
        variables.extend(self.0.variables.clone());
        variables
    }

    /// What it has asked for so far.
    pub fn records(&self) -> Vec<EgressRecord> {
        let GrantedEgress { policy, log, .. } = &*self.0;
        log.snapshot().into_iter().filter(|record| record.step == policy.step).collect()
    }
}

impl GrantedEgress {
    fn allows_loopback(&self) -> bool {
        let network = self.policy.network.current();
        let is_allowed =
            |name: &str| AskedHost::parse(name).is_some_and(|host| network.names(&host));
        LOOPBACK.into_iter().any(is_allowed)
    }
}

impl EgressService for GrantedEgress {
    fn serve(&self, listener: TcpListener) -> io::Result<Retained> {
        let proxy = EgressProxy::serve(
            listener,
            ProxyTerms {
                policy: self.policy.clone(),
                log: Arc::clone(&self.log),
                trust: Arc::clone(&self.trust),
                roots: self.roots.clone(),
                keeps_paths: self.log_paths,
            },
        )?;
        // Dropped, it closes.
        Ok(Retained::of(Arc::new(proxy)))
    }

    fn home_files(&self) -> Vec<(&'static str, String)> {
        proxy_files(EGRESS_PORT, self.allows_loopback()).into()
    }

    fn shows_files(&self) -> bool {
        self.is_lasting || self.trust.is_needed()
    }

    fn shown_files(
        &self,
        directory: &Path,
        read: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> io::Result<Vec<RootFile>> {
        match self.shows_files() {
            true => self.trust.shown_files(directory, read),
            false => Ok(Vec::new()),
        }
    }
}
