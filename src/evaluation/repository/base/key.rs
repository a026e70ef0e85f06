//! What bases are known by.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::evaluation::repository::error::RepositoryError;
use cofferdam_core::values::digest::tagged_hash;
use cofferdam_core::{NetworkObject, RuleObject, SetupFailure};

/// The version of what is hashed, and of what is made of it.
const BASE_TAG: &str = "base-1";
/// That of what is installed for agents.
const AGENT_TAG: &str = "agent-1";

/// All that a base is made of.
#[derive(Debug, Clone, Serialize)]
pub struct BaseKey<'a> {
    /// Whose cache it is in.
    pub owner: &'a str,
    /// The repository, or `files` and the digest of the files.
    pub repository: &'a str,
    /// The full hash; empty for files.
    pub commit: &'a str,
    /// The commands of install.
    pub install: &'a [String],
    /// The variables of install besides those of every phase.
    pub env: &'a BTreeMap<String, String>,
    /// What install may reach.
    #[serde(flatten)]
    pub network: ReachedNetwork<'a>,
    /// Where the repository is seen.
    pub workdir: &'a str,
    /// The root file system.
    pub rootfs: &'a str,
}

impl BaseKey<'_> {
    /// The digest, `base-1:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// Never: all of it is text.
    pub fn digest(&self) -> Result<String, RepositoryError> {
        digest_of(BASE_TAG, self)
    }
}

/// What commands may reach, without the values of secrets.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ReachedNetwork<'a> {
    hosts: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rules: &'a BTreeMap<String, Vec<RuleObject>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    secret_env: &'a BTreeMap<String, String>,
}

impl<'a> ReachedNetwork<'a> {
    /// What `network` lets them reach.
    pub fn of(network: &'a NetworkObject) -> Self {
        let NetworkObject { allow, rules, secret_env, .. } = network;
        Self { hosts: allow, rules, secret_env }
    }
}

/// All that the installation of an agent is made of.
#[derive(Debug, Clone, Serialize)]
pub struct AgentKey<'a> {
    /// Whose cache it is in.
    pub owner: &'a str,
    /// The commands.
    pub install: &'a [String],
    /// The variables of install besides those of every phase.
    pub env: &'a BTreeMap<String, String>,
    /// What it may reach.
    #[serde(flatten)]
    pub network: ReachedNetwork<'a>,
    /// The root file system.
    pub rootfs: &'a str,
}

impl AgentKey<'_> {
    /// The digest, `agent-1:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// Never: all of it is text.
    pub fn digest(&self) -> Result<String, RepositoryError> {
        digest_of(AGENT_TAG, self)
    }
}

fn digest_of(tag: &str, key: &impl Serialize) -> Result<String, RepositoryError> {
    tagged_hash(tag, key)
        .map_err(|error| SetupFailure::from_words("digest of base", error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_install_sees_changes_the_digest() {
        let (install, env) = (["make".to_owned()], BTreeMap::new());
        let hosts = NetworkObject::of_hosts(vec!["h:443".to_owned()]);
        let ruled = |text: &str| -> NetworkObject { serde_json::from_str(text).unwrap() };
        let with_rules = [
            ruled(r#"{"allow": ["h:443"], "rules": {"h": [{}]}}"#),
            ruled(r#"{"allow": ["h:443"], "rules": {"h": [{"path": "/a"}]}}"#),
            ruled(r#"{"allow": ["h:443"], "secret_env": {"A": "a"}}"#),
        ];
        let none = NetworkObject::default();
        let other_env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let key = BaseKey {
            owner: "a",
            repository: "https://h/r",
            commit: "c",
            install: &install,
            env: &env,
            network: ReachedNetwork::of(&hosts),
            workdir: "/workspace",
            rootfs: "host",
        };
        let all = [
            key.clone(),
            BaseKey { owner: "b", ..key.clone() },
            BaseKey { repository: "https://h/s", ..key.clone() },
            BaseKey { commit: "d", ..key.clone() },
            BaseKey { install: &[], ..key.clone() },
            BaseKey { env: &other_env, ..key.clone() },
            BaseKey { network: ReachedNetwork::of(&none), ..key.clone() },
            BaseKey { network: ReachedNetwork::of(&with_rules[0]), ..key.clone() },
            BaseKey { network: ReachedNetwork::of(&with_rules[1]), ..key.clone() },
            BaseKey { network: ReachedNetwork::of(&with_rules[2]), ..key.clone() },
            BaseKey { workdir: "/srv/a", ..key.clone() },
            BaseKey { rootfs: "other", ..key.clone() },
        ];
        let digests: std::collections::BTreeSet<String> =
            all.iter().map(|key| key.digest().unwrap()).collect();
        assert_eq!(digests.len(), all.len());
        assert_eq!(key.digest(), key.digest());
    }
}
