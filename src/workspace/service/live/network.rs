//! What the programs of a live workspace may reach, and what they asked for.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::egress::rules::{NetworkDenial, WithheldValues};
use crate::egress::secret::Placeholders;
use crate::egress::{AllowList, EgressGrant, EgressLog, EgressTerms, SandboxNetwork};
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::NetworkObject;
use cofferdam_core::egress::EgressRecord;

/// What the programs of the workspaces of a service may reach at most.
#[derive(Debug, Clone, Default)]
pub struct NetworkTerms {
    /// The hosts that requests may name.
    pub hosts: AllowList,
    /// How they are served.
    pub egress: EgressTerms,
}

/// What the programs of a live workspace may reach, and what they asked for.
#[derive(Debug)]
pub struct WorkspaceNetwork {
    terms: NetworkTerms,
    /// The name of the token that the workspace belongs to.
    owner: String,
    log: Arc<EgressLog>,
    state: Mutex<NetworkState>,
}

#[derive(Debug, Default)]
struct NetworkState {
    object: Option<NetworkObject>,
    placeholders: Placeholders,
    /// That of all its sandboxes.
    sandboxes: Option<SandboxNetwork>,
    /// That of the sandbox that all its programs share.
    shared: Option<EgressGrant>,
}

impl NetworkTerms {
    /// Checks that a workspace of `owner` may reach what `network` names, whose fields are below `path`.
    ///
    /// # Errors
    /// A host is not within those of the service, or a secret is not for this owner.
    pub fn check(
        &self,
        path: &str,
        network: &NetworkObject,
        owner: &str,
    ) -> Result<(), EngineError> {
        self.check_hosts(path, network)?;
        let read =
            self.egress.network(network, owner, &Placeholders::default(), WithheldValues::Refused);
        read.map(drop).map_err(|denial| refusal(path, denial))
    }

    fn check_hosts(&self, path: &str, network: &NetworkObject) -> Result<(), EngineError> {
        let denied = |reason: String, field: &str| {
            let words = format!("network is not allowed: {reason}");
            EngineError::new(EngineCode::NetworkDenied, words)
                .with("path", format!("{path}{field}"))
        };
        let keys: Vec<String> = network.rules.keys().cloned().collect();
        for (field, entries) in [("allow", &network.allow), ("rules", &keys)] {
            let asked =
                AllowList::parse(entries).map_err(|error| denied(error.to_string(), field))?;
            asked.is_within(&self.hosts).map_err(|reason| denied(reason, field))?;
        }
        Ok(())
    }
}

/// The error of a network object whose fields are below `path`.
fn refusal(path: &str, denial: NetworkDenial) -> EngineError {
    match denial {
        NetworkDenial::Invalid(fault) => {
            EngineError::invalid(&format!("{path}{}", fault.path), fault.words)
        }
        NetworkDenial::SecretDenied { ref name } => {
            let name = name.clone();
            EngineError::new(EngineCode::SecretDenied, denial.to_string()).with("name", name)
        }
    }
}

impl WorkspaceNetwork {
    /// The network of a workspace of `owner` that was created, or woken, with `object`.
    pub fn new(
        terms: NetworkTerms,
        object: Option<NetworkObject>,
        placeholders: Placeholders,
        owner: &str,
    ) -> Self {
        // Read now, so that a live network keeps the service's secrets as they are now. What cannot be read is
        // told when the first sandbox asks for it.
        let withheld = WithheldValues::Missing;
        let read = |object| terms.egress.network(object, owner, &placeholders, withheld).ok();
        let sandboxes = object.as_ref().and_then(read);
        let state = NetworkState { object, placeholders, sandboxes, shared: None };
        let (log, owner) = (terms.egress.log(), owner.to_owned());
        Self { log, terms, owner, state: Mutex::new(state) }
    }

    /// Checks the variables `env` that a program has beside those of the network.
    ///
    /// # Errors
    /// One of them holds a placeholder.
    pub fn check_env(&self, env: &BTreeMap<String, String>) -> Result<(), EngineError> {
        let state = self.lock();
        let mut placed = state.object.iter().flat_map(|network| network.secret_env.keys());
        match placed.find(|name| env.contains_key(*name)) {
            Some(name) => Err(EngineError::invalid(
                &format!("env.{name}"),
                "is in the network's secret_env too",
            )),
            None => Ok(()),
        }
    }

    /// What its programs may reach.
    pub fn object(&self) -> Option<NetworkObject> {
        self.lock().object.clone()
    }

    /// What a record keeps: no value of a secret.
    pub fn recorded(&self) -> (Option<NetworkObject>, Placeholders) {
        let state = self.lock();
        (state.object.as_ref().map(NetworkObject::withheld), state.placeholders.clone())
    }

    /// Lets its programs reach what `object` names instead, which was checked: new requests at once.
    /// Placeholders of secrets that stay are kept.
    ///
    /// # Errors
    /// A secret is not for its owner, or what programs trust cannot be written.
    pub fn replace(&self, object: NetworkObject) -> Result<(), EngineError> {
        let mut state = self.lock();
        let placeholders = state.placeholders.kept_for(&object);
        let withheld = WithheldValues::Refused;
        let read = self.terms.egress.network(&object, &self.owner, &placeholders, withheld);
        let network = read.map_err(|denial| refusal("", denial))?;
        match &mut state.sandboxes {
            Some(sandboxes) => {
                let failed = |error: io::Error| {
                    EngineError::new(EngineCode::IoFailed, format!("network: {error}"))
                };
                sandboxes.replace(network.live.current()).map_err(failed)?;
                sandboxes.variables = network.variables;
            }
            None => state.sandboxes = Some(network),
        }
        (state.object, state.placeholders) = (Some(object), placeholders);
        Ok(())
    }

    /// Lets one more sandbox reach that, if anything. Its records have `step`.
    ///
    /// # Errors
    /// The service no longer allows it.
    pub fn grant(&self, step: Option<String>) -> Result<Option<EgressGrant>, EngineError> {
        let mut state = self.lock();
        let Some(object) = &state.object else { return Ok(None) };
        self.terms.check_hosts("network.", object)?;
        let network = match &state.sandboxes {
            Some(network) => network.clone(),
            None => {
                let (placeholders, withheld) = (&state.placeholders, WithheldValues::Missing);
                let read = self.terms.egress.network(object, &self.owner, placeholders, withheld);
                read.map_err(|denial| refusal("network.", denial))?
            }
        };
        state.sandboxes = Some(network.clone());
        Ok(Some(self.terms.egress.grant(network, Arc::clone(&self.log), step)))
    }

    /// As [`WorkspaceNetwork::grant`], for the sandbox that all programs share.
    ///
    /// # Errors
    /// The service no longer allows it.
    pub fn grant_shared(&self) -> Result<Option<EgressGrant>, EngineError> {
        let grant = self.grant(None)?.map(|grant| grant.lasting());
        self.lock().shared.clone_from(&grant);
        Ok(grant)
    }

    /// That of the sandbox that all programs share, with the variables of programs that begin now.
    pub fn shared(&self) -> Option<EgressGrant> {
        let state = self.lock();
        let variables = state.sandboxes.as_ref().map(|network| network.variables.clone());
        state.shared.as_ref().map(|grant| grant.with_variables(variables.unwrap_or_default()))
    }

    /// What its programs have asked for.
    pub fn records(&self) -> Vec<EgressRecord> {
        self.log.snapshot()
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one program of a workspace asks for.
#[derive(Debug, Default)]
pub struct ProgramEgress {
    grant: Option<EgressGrant>,
    /// Records of its sandbox from before it.
    before: usize,
}

impl ProgramEgress {
    /// The program of a sandbox that may reach what `grant` says.
    pub fn of(grant: Option<EgressGrant>) -> Self {
        let before = grant.as_ref().map_or(0, |grant| grant.records().len());
        Self { grant, before }
    }

    /// Its variables.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.grant.as_ref().map(EgressGrant::environment).unwrap_or_default()
    }

    /// What serves the socket of its own sandbox.
    pub fn grant(&self) -> Option<&EgressGrant> {
        self.grant.as_ref()
    }

    /// What was asked for since it began.
    pub fn records(&self) -> Vec<EgressRecord> {
        let all = self.grant.as_ref().map(EgressGrant::records).unwrap_or_default();
        all.into_iter().skip(self.before).collect()
    }
}
