//! What the commands of provisioning may reach, and by which rules.

use std::path::Path;
use std::sync::Arc;

use super::error::ProvisionError;
use super::hosts::ReachedHosts;
use crate::config::read_network_object;
use crate::egress::rules::{NetworkRules, WithheldValues};
use crate::egress::secret::Placeholders;
use crate::egress::{AllowList, EgressGrant, EgressLog, EgressTerms};
use cofferdam_core::NetworkObject;

/// The step that records of requests name.
const STEP: &str = "provision";

/// What one provisioning may reach.
#[derive(Debug, Clone)]
pub struct ProvisionNetwork {
    terms: EgressTerms,
    object: NetworkObject,
}

/// Reads the file that `CASES_PROVISION_NETWORK` names.
///
/// # Errors
/// What is wrong with it, never the value of a secret.
pub fn read_provision_network(path: &Path) -> Result<NetworkObject, String> {
    let object = read_network_object(path)?;
    NetworkRules::check(&object).map_err(|fault| fault.to_string())?;
    Ok(object)
}

impl ProvisionNetwork {
    /// Reaches `hosts` by the rules of `configured`. A host without rules is reached if `configured` has no `allow`, or
    /// one that names it. With `trusts_case`, as on the command line, hosts that the Case names need no public address.
    ///
    /// # Errors
    /// A host is no entry, or `configured` is wrong.
    pub fn new(
        mut terms: EgressTerms,
        configured: &NetworkObject,
        hosts: &ReachedHosts,
        trusts_case: bool,
    ) -> Result<Self, ProvisionError> {
        let object = NetworkRules::narrowed(configured, hosts.entries());
        let object = object.map_err(|fault| failed(&fault))?;
        if let (ReachedHosts::OfCase(named), true) = (hosts, trusts_case) {
            let private = [terms.private_hosts.entries(), named].concat();
            terms.private_hosts = AllowList::parse(&private).map_err(|error| failed(&error))?;
        }
        Ok(Self { terms, object })
    }

    /// The hosts and the rules over requests to them.
    pub fn object(&self) -> &NetworkObject {
        &self.object
    }

    /// Lets the commands of one Cell reach it, with the secrets of `owner`, the name of a token. What they ask for is
    /// recorded in `log`. `None` if there is nothing to reach.
    ///
    /// # Errors
    /// A rule is wrong.
    pub fn grant(
        &self,
        owner: &str,
        log: Arc<EgressLog>,
    ) -> Result<Option<EgressGrant>, ProvisionError> {
        if self.object.hosts().is_empty() {
            return Ok(None);
        }
        let placeholders = Placeholders::new_for(&self.object);
        // A request that needs a secret which the owner may not use is refused.
        let withheld = WithheldValues::Missing;
        let network = self.terms.network(&self.object, owner, &placeholders, withheld);
        let network = network.map_err(|denial| failed(&denial))?;
        Ok(Some(self.terms.grant(network, log, Some(STEP.to_owned()))))
    }
}

fn failed(reason: &impl ToString) -> ProvisionError {
    ProvisionError::Network { reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::json::parse_object;

    fn configured(json: &str) -> NetworkObject {
        parse_object(json.as_bytes()).unwrap()
    }

    fn hosts(entries: &[&str]) -> ReachedHosts {
        ReachedHosts::OfCase(entries.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_host_is_reached_by_its_rules_and_within_what_is_configured() {
        let ruled = r#"{"rules": {"i.example": [{"methods": ["GET"]}]}}"#;
        let allowed = r#"{"allow": ["a.example"], "rules": {"i.example": [{"methods": ["GET"]}]}}"#;
        for (json, named, allow, rules) in [
            (
                "{}",
                &["a.example:443", "b.example"][..],
                &["a.example:443", "b.example"][..],
                &[][..],
            ),
            (ruled, &["i.example:443", "b.example"], &["b.example"], &["i.example:443"]),
            (
                allowed,
                &["i.example", "a.example:443", "b.example"],
                &["a.example:443"],
                &["i.example"],
            ),
            (allowed, &[], &[], &[]),
        ] {
            let terms = EgressTerms::default();
            let network = ProvisionNetwork::new(terms, &configured(json), &hosts(named), false);
            let network = network.unwrap();
            assert_eq!(network.object().allow, allow, "{json} {named:?}");
            assert_eq!(
                network.object().rules.keys().collect::<Vec<_>>(),
                rules,
                "{json} {named:?}"
            );
            let log = EgressTerms::default().log();
            let grant = network.grant("", log).unwrap();
            assert_eq!(grant.is_some(), !named.is_empty());
        }
    }

    #[test]
    fn only_what_a_trusted_case_names_need_not_be_public() {
        let private = |hosts: &ReachedHosts, trusts_case| {
            let configured = AllowList::parse(&["10.0.0.1".to_owned()]).unwrap();
            let terms = EgressTerms { private_hosts: configured, ..EgressTerms::default() };
            let network = NetworkObject::default();
            let network = ProvisionNetwork::new(terms, &network, hosts, trusts_case).unwrap();
            network.terms.private_hosts.entries().to_vec()
        };
        let of_case = hosts(&["127.0.0.1:8000"]);
        let of_indexes = ReachedHosts::OfIndexes(of_case.entries().to_vec());
        assert_eq!(private(&of_case, true), ["10.0.0.1", "127.0.0.1:8000"]);
        assert_eq!(private(&of_case, false), ["10.0.0.1"]);
        assert_eq!(private(&of_indexes, true), ["10.0.0.1"]);
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_without_its_secrets() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("network.json");
        for (text, told) in [
            (r#"{"rules": {"i.example": [{"header": {}}]}}"#, "header"),
            (
                r#"{"rules": {"i.example": []}, "secrets": {"k": {"value": "do-not-show"}}}"#,
                "secrets.k",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let fault = read_provision_network(&path).unwrap_err();
            assert!(fault.contains(told) && !fault.contains("do-not-show"), "{fault}");
        }
    }
}
