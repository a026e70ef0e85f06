//! The secrets of the service, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use cofferdam_core::SecretValue;

use crate::egress::hosts::allow_list::AllowList;

/// One secret of the service.
#[derive(Debug)]
pub struct ServiceSecret {
    /// Its value.
    pub value: Arc<SecretValue>,
    /// Where it may be sent.
    pub hosts: AllowList,
    /// The names of the tokens that may use it; all if none are listed.
    pub tokens: Option<Vec<String>>,
}

/// The secrets of the service. Clones are the same ones.
#[derive(Clone, Default)]
pub struct ServiceSecrets(Arc<RwLock<BTreeMap<String, ServiceSecret>>>);

impl fmt::Debug for ServiceSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        out.debug_tuple("ServiceSecrets").field(&secrets.keys().collect::<Vec<_>>()).finish()
    }
}

impl ServiceSecrets {
    /// Lets `secrets` be those of the service from now on.
    pub fn replace(&self, secrets: BTreeMap<String, ServiceSecret>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = secrets;
    }

    /// The value of the secret `name` and its hosts, if the holder of `token` may use it.
    pub fn find(&self, name: &str, token: &str) -> Option<(Arc<SecretValue>, AllowList)> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let ServiceSecret { value, hosts, tokens } = secrets.get(name)?;
        let is_for = tokens.as_ref().is_none_or(|tokens| tokens.iter().any(|own| own == token));
        is_for.then(|| (Arc::clone(value), hosts.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_for_its_tokens_alone() {
        let secrets = ServiceSecrets::default();
        let secret = |text: &str, tokens: Option<&[&str]>| ServiceSecret {
            value: Arc::new(SecretValue::new(text.to_owned()).unwrap()),
            hosts: AllowList::default(),
            tokens: tokens.map(|tokens| tokens.iter().map(ToString::to_string).collect()),
        };
        let all = [
            ("of-all", secret("value-of-all", None)),
            ("of-ci", secret("value-of-ci", Some(&["ci", "cd"]))),
            ("of-none", secret("value-of-none", Some(&[]))),
        ];
        secrets.replace(all.into_iter().map(|(name, secret)| (name.to_owned(), secret)).collect());
        for (name, token, is_found) in [
            ("of-all", "", true),
            ("of-all", "ci", true),
            ("of-ci", "ci", true),
            ("of-ci", "cd", true),
            ("of-ci", "c", false),
            ("of-ci", "", false),
            ("of-none", "ci", false),
            ("other", "ci", false),
        ] {
            assert_eq!(secrets.find(name, token).is_some(), is_found, "{name} {token}");
        }
        let shown = format!("{secrets:?}");
        assert!(shown.contains("of-ci") && !shown.contains("value"), "{shown}");
        secrets.replace(BTreeMap::new());
        assert!(secrets.find("of-all", "").is_none());
    }
}
