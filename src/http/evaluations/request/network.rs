//! What an agent asks to reach.

use super::fields::{agent_variable, invalid};
use crate::egress::AllowList;
use crate::egress::rules::NetworkRules;
use crate::evaluation::service::EvaluationsError;
use cofferdam_core::NetworkObject;

/// Checks `agent_network`, whose path is `field`, against the hosts that agents may reach.
///
/// # Errors
/// A field is wrong, or a host is not among those of the service, which is a denial.
pub fn agent_network(
    field: &str,
    network: &NetworkObject,
    allowed: &AllowList,
) -> Result<(), EvaluationsError> {
    NetworkRules::check(network)
        .map_err(|fault| invalid(format!("{field}.{}", fault.path), fault.words))?;
    for name in network.secret_env.keys() {
        agent_variable(&format!("{field}.secret_env"), name)?;
    }
    for (part, entries) in [
        ("allow", network.allow.clone()),
        ("rules", network.rules.keys().cloned().collect::<Vec<_>>()),
    ] {
        let field = format!("{field}.{part}");
        hosts(&field, &entries)?.is_within(allowed).map_err(|outside| {
            let message = format!("{outside} is not among the hosts that agents may reach");
            EvaluationsError::NetworkDenied { field, message }
        })?;
    }
    Ok(())
}

/// Checks the same for a batch, whose items wait on disk, where no value of a secret is kept.
///
/// # Errors
/// As [`agent_network`]; or a secret has a value.
pub fn agent_network_of_batch(
    field: &str,
    network: &NetworkObject,
    allowed: &AllowList,
) -> Result<(), EvaluationsError> {
    let given = network.secrets.iter().find(|(_, secret)| !secret.value.is_of_service());
    if let Some((name, _)) = given {
        let field = format!("{field}.secrets.{}.value", name.escape_debug());
        return Err(invalid(field, "secrets of a batch are the service's, from SECRETS_FILE"));
    }
    agent_network(field, network, allowed)
}

/// Reads `agent_hosts`, which narrows the hosts that agents may reach.
///
/// # Errors
/// An entry is malformed, or not among them.
pub fn agent_hosts(
    allow: Vec<String>,
    allowed: &AllowList,
) -> Result<NetworkObject, EvaluationsError> {
    let asked = hosts("agent_hosts", &allow)?;
    asked.is_within(allowed).map_err(|outside| {
        invalid("agent_hosts", format!("{outside} is not among the hosts that agents may reach"))
    })?;
    Ok(NetworkObject::of_hosts(allow))
}

fn hosts(field: &str, allow: &[String]) -> Result<AllowList, EvaluationsError> {
    if allow.len() > NetworkObject::HOSTS_MAX {
        let message = format!("more than {} hosts", NetworkObject::HOSTS_MAX);
        return Err(invalid(field, message));
    }
    AllowList::parse(allow)
        .map_err(|error| invalid(format!("{field}[{}]", error.index), error.to_string()))
}
