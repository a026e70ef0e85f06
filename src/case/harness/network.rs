//! What an agent may reach, as its Case says it.

use serde_json::Value;
use zeroize::Zeroizing;

use super::end::HarnessError;
use crate::case::file::HarnessNetwork;
use crate::egress::rules::{NetworkDenial, WithheldValues};
use crate::egress::secret::Placeholders;
use crate::egress::{AllowList, EgressGrant, EgressTerms, SandboxNetwork};
use cofferdam_core::NetworkObject;
use cofferdam_core::json::{JsonFault, parse_object};

/// What the words begin with about a secret that may not be used.
pub(super) const SECRET_DENIED: &str = "policy.secret_denied";
/// The step that records of requests name.
const STEP: &str = "agent";

/// What holds for the networks of all agents of a run.
#[derive(Debug, Clone, Default)]
pub struct HarnessTerms {
    /// What they have in common. Its private hosts are those of the service.
    pub egress: EgressTerms,
    /// The name of the token of the run, which the secrets of the service are for.
    pub token: String,
    /// Whether the Case is its caller's own, as on the command line: then hosts that it names may be private, and the
    /// endpoint of a model need not be among those that its agent may reach.
    pub trusts_case: bool,
}

/// What the agent of one harness may reach.
#[derive(Debug, Clone)]
pub struct AgentReach {
    /// The hosts and rules.
    pub network: SandboxNetwork,
    /// What holds for its addresses.
    pub terms: EgressTerms,
    /// Whether it names no host.
    pub is_empty: bool,
}

impl AgentReach {
    /// Reads the network of a harness. `variables` has the values of those that its secrets name.
    ///
    /// # Errors
    /// A variable is not set, or a secret may not be used.
    pub fn read(
        network: &HarnessNetwork,
        terms: &HarnessTerms,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, HarnessError> {
        let object = network_object(network, variables)?;
        let placeholders = Placeholders::new_for(&object);
        let refused = WithheldValues::Refused;
        let network = terms.egress.network(&object, &terms.token, &placeholders, refused);
        let network = network.map_err(|denial| HarnessError::failed(network_words(&denial)))?;
        let hosts = object.hosts();
        let is_empty = hosts.is_empty();
        Ok(Self { network, terms: terms.with_hosts_of_case(&hosts), is_empty })
    }

    /// Lets the agent's programs reach it; `None` if there is nothing to reach.
    pub fn grant(&self) -> Option<EgressGrant> {
        let grant =
            || self.terms.grant(self.network.clone(), self.terms.log(), Some(STEP.to_owned()));
        (!self.is_empty).then(grant)
    }
}

impl HarnessTerms {
    /// The terms of egress, by which `hosts` may be private if the Case may say so.
    pub(super) fn with_hosts_of_case(&self, hosts: &[String]) -> EgressTerms {
        let mut terms = self.egress.clone();
        if self.trusts_case {
            let entries = [terms.private_hosts.entries(), hosts].concat();
            // Those of a valid Case are entries.
            terms.private_hosts = AllowList::parse(&entries).unwrap_or(terms.private_hosts);
        }
        terms
    }
}

/// Why a network may not be used.
fn network_words(denial: &NetworkDenial) -> String {
    match denial {
        NetworkDenial::SecretDenied { .. } => format!("{SECRET_DENIED}: network: {denial}"),
        denial => format!("network: {denial}"),
    }
}

/// The network object, with the values of variables in place of their names.
fn network_object(
    network: &HarnessNetwork,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<NetworkObject, HarnessError> {
    let mut json = match network {
        HarnessNetwork::Egress(hosts) => return Ok(NetworkObject::of_hosts(hosts.clone())),
        HarnessNetwork::Object(json) => json.clone(),
    };
    with_values(&mut json, variables)?;
    let text = Zeroizing::new(json.to_string());
    parse_object(text.as_bytes()).map_err(|fault| {
        let words = match fault {
            JsonFault::Invalid { path, words } => format!("{path}: {words}"),
            JsonFault::NotJson { .. } => "this is no network object".to_owned(),
        };
        HarnessError::failed(format!("network: {words}"))
    })
}

/// Puts the values of variables in the place of their names in the network object `json`.
pub(super) fn with_values(
    json: &mut Value,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<(), HarnessError> {
    let secrets = json.get_mut("secrets").and_then(Value::as_object_mut);
    for secret in secrets.into_iter().flat_map(|secrets| secrets.values_mut()) {
        let Some(value) = secret.get_mut("value") else { continue };
        if let Some(name) = variable_of(value) {
            let found = variables(name)
                .ok_or_else(|| HarnessError::failed(format!("the variable {name} is not set")))?;
            *value = Value::String(found);
        }
    }
    Ok(())
}

/// The variable that stands for the value of a secret, written as `{env: VARIABLE}`.
pub(super) fn variable_of(value: &Value) -> Option<&str> {
    value.as_object()?.get("env")?.as_str()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde_json::json;

    use super::*;

    fn variables(name: &str) -> Option<String> {
        (name == "KEY").then(|| "value-of-the-variable".to_owned())
    }

    fn object(variable: &str) -> HarnessNetwork {
        HarnessNetwork::Object(json!({
            "rules": {"api.example": [{"headers": {"authorization": "Bearer {{secret.k}}"}}]},
            "secrets": {"k": {"value": {"env": variable}, "hosts": ["api.example"]}},
        }))
    }

    #[test]
    fn a_secret_has_the_value_of_its_variable() {
        let read = network_object(&object("KEY"), &variables).unwrap();
        assert!(!read.secrets["k"].value.is_of_service());
        let error = network_object(&object("OTHER"), &variables).unwrap_err();
        assert_eq!(error.message, "the variable OTHER is not set");
        assert!(AgentReach::read(&object("KEY"), &HarnessTerms::default(), &variables).is_ok());
    }

    #[test]
    fn only_a_case_of_the_caller_may_name_private_hosts() {
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let network = HarnessNetwork::Egress(vec!["127.0.0.1:8080".to_owned()]);
        for trusts_case in [false, true] {
            let terms = HarnessTerms { trusts_case, ..HarnessTerms::default() };
            let reach = AgentReach::read(&network, &terms, &variables).unwrap();
            let judged = reach.terms.judge_address("127.0.0.1", address);
            assert_eq!(judged.is_ok(), trusts_case);
            assert!(reach.grant().is_some());
        }
        let nothing = HarnessNetwork::Egress(Vec::new());
        let reach = AgentReach::read(&nothing, &HarnessTerms::default(), &variables).unwrap();
        assert!(reach.grant().is_none());
    }
}
