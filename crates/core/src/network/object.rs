//! What a request lets its programs reach.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::RuleObject;
use super::secret::SecretObject;

/// What a request lets its programs reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkObject {
    /// The hosts, as `host`, `host:port`, `host:*`, `*.host:port`, an address or a CIDR block. The port
    /// is 443 if none is given.
    #[schemars(length(max = 64))]
    pub allow: Vec<String>,
    /// Hosts whose requests are judged one by one, each with its rules. They need not stand in `allow`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, Vec<RuleObject>>,
    /// The secrets that rules and placeholders name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretObject>,
    /// Variables of the program, each with the secret whose placeholder it holds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
}

impl NetworkObject {
    /// The most entries of `allow`, keys of `rules`, hosts of a secret and variables of `secret_env`.
    pub const HOSTS_MAX: usize = 64;
    /// The most rules of a host.
    pub const RULES_MAX: usize = 32;
    /// The most secrets.
    pub const SECRETS_MAX: usize = 16;

    /// A network with `hosts` alone.
    pub fn of_hosts(hosts: Vec<String>) -> Self {
        Self { allow: hosts, ..Self::default() }
    }

    /// All hosts that it names, as entries.
    pub fn hosts(&self) -> Vec<String> {
        self.allow.iter().chain(self.rules.keys()).cloned().collect()
    }

    /// The same without the values of secrets, as it is recorded and shown.
    #[must_use]
    pub fn withheld(&self) -> Self {
        let mut shown = self.clone();
        for secret in shown.secrets.values_mut() {
            secret.value = secret.value.withheld();
        }
        shown
    }
}
