//! A network object, parsed: all that can be said of it without the secrets of the service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cofferdam_core::values::names::is_variable_name;
use cofferdam_core::{GivenSecret, NetworkObject, SecretObject, SecretValue, is_secret_name};

use super::fault::NetworkFault;
use super::host_rules::HostRules;
use crate::egress::hosts::allow_list::AllowList;
use crate::egress::secret::place::{SecretPlace, default_places};

/// Whether values that a record withholds are refused, as in a request, or missing, as in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithheldValues {
    /// They are an error.
    Refused,
    /// Requests that need them are refused.
    Missing,
}

/// A network object, parsed.
#[derive(Debug)]
pub struct CheckedNetwork {
    pub allow: AllowList,
    pub hosts: Vec<HostRules>,
    pub secrets: BTreeMap<String, CheckedSecret>,
    pub placeholders: BTreeSet<String>,
}

/// A secret that a network object names.
#[derive(Debug)]
pub struct CheckedSecret {
    pub source: CheckedSource,
    pub places: Vec<SecretPlace>,
}

/// Where the value of a secret is.
#[derive(Debug)]
pub enum CheckedSource {
    Service,
    /// With the request; none if only a record of the request is left.
    Request {
        value: Option<Arc<SecretValue>>,
        hosts: AllowList,
    },
}

impl CheckedNetwork {
    /// Parses `object`.
    pub fn parse(object: &NetworkObject, withheld: WithheldValues) -> Result<Self, NetworkFault> {
        at_most(NetworkObject::HOSTS_MAX, "hosts", "rules", object.rules.len())?;
        let allow = hosts("allow", &object.allow)?;
        let mut keys: Vec<HostRules> = Vec::new();
        for (key, rules) in &object.rules {
            let parsed = HostRules::parse(key, rules)?;
            let is_same = |other: &HostRules| {
                other.entry.covers(&parsed.entry) && parsed.entry.covers(&other.entry)
            };
            if let Some(other) = keys.iter().find(|other| is_same(other)) {
                let words = format!("the same hosts as {}", other.path);
                return Err(NetworkFault::new(parsed.path, words));
            }
            keys.push(parsed);
        }
        at_most(NetworkObject::HOSTS_MAX, "variables", "secret_env", object.secret_env.len())?;
        let mut secrets = BTreeMap::new();
        for (name, secret) in &object.secrets {
            secrets.insert(name.clone(), CheckedSecret::parse(name, secret, withheld)?);
        }
        for (variable, name) in &object.secret_env {
            let path = format!("secret_env.{}", variable.escape_debug());
            if !is_variable_name(variable) {
                return Err(NetworkFault::new(path, "want the name of a variable"));
            }
            if !is_secret_name(name) {
                return Err(NetworkFault::new(path, "want the name of a secret"));
            }
        }
        let placeholders: BTreeSet<String> = object.secret_env.values().cloned().collect();
        let used = keys.iter().flat_map(HostRules::secrets).map(|(_, name)| name.to_owned());
        for name in used.chain(placeholders.iter().cloned()).collect::<Vec<_>>() {
            secrets.entry(name).or_insert_with(CheckedSecret::of_service);
        }
        at_most(NetworkObject::SECRETS_MAX, "secrets", "secrets", secrets.len())?;
        let checked = Self { allow, hosts: keys, secrets, placeholders };
        for (name, secret) in &checked.secrets {
            if let CheckedSource::Request { hosts, .. } = &secret.source {
                checked.check_hosts(name, hosts)?;
            }
        }
        Ok(checked)
    }

    /// Checks that rules use the secret `name` for `hosts` alone.
    pub fn check_hosts(&self, name: &str, hosts: &AllowList) -> Result<(), NetworkFault> {
        let outside = self.hosts.iter().filter(|key| !hosts.covers(&key.entry));
        match outside.flat_map(HostRules::secrets).find(|(_, used)| *used == name) {
            Some((path, _)) => {
                let words = format!("the secret {name:?} is not for this host");
                Err(NetworkFault::new(path, words))
            }
            None => Ok(()),
        }
    }
}

impl HostRules {
    /// The names of the secrets in its rules, each with the path of the field.
    fn secrets(&self) -> impl Iterator<Item = (String, &str)> {
        self.rules.iter().enumerate().flat_map(move |(index, counted)| {
            counted.rule.templates().flat_map(move |(field, template)| {
                let path = format!("{}[{index}].{field}", self.path);
                template.secrets().map(move |name| (path.clone(), name))
            })
        })
    }
}

impl CheckedSecret {
    fn of_service() -> Self {
        Self { source: CheckedSource::Service, places: default_places() }
    }

    fn parse(
        name: &str,
        object: &SecretObject,
        withheld: WithheldValues,
    ) -> Result<Self, NetworkFault> {
        let path = format!("secrets.{}", name.escape_debug());
        if !is_secret_name(name) {
            return Err(NetworkFault::new(path, "want a name of letters, digits and _"));
        }
        let places = match &object.places {
            Some(texts) => places(&path, texts)?,
            None => default_places(),
        };
        let hosts_path = format!("{path}.hosts");
        let value = match (&object.value, &object.hosts) {
            (GivenSecret::OfService, None) => {
                return Ok(Self { source: CheckedSource::Service, places });
            }
            (GivenSecret::OfService, Some(_)) => {
                return Err(NetworkFault::new(hosts_path, "a secret of the service has its own"));
            }
            (GivenSecret::Withheld, _) if withheld == WithheldValues::Refused => {
                return Err(NetworkFault::new(format!("{path}.value"), "want a string"));
            }
            (GivenSecret::Withheld, _) => None,
            (GivenSecret::Value(value), _) => Some(Arc::clone(value)),
        };
        let given = object.hosts.as_deref().unwrap_or_default();
        if given.is_empty() {
            return Err(NetworkFault::new(hosts_path, "want the hosts that the secret is for"));
        }
        let hosts = hosts(&hosts_path, given)?;
        Ok(Self { source: CheckedSource::Request { value, hosts }, places })
    }
}

fn at_most(most: usize, what: &str, path: &str, count: usize) -> Result<(), NetworkFault> {
    if count <= most {
        return Ok(());
    }
    Err(NetworkFault::new(path, format!("more than {most} {what}")))
}

fn hosts(path: &str, entries: &[String]) -> Result<AllowList, NetworkFault> {
    at_most(NetworkObject::HOSTS_MAX, "hosts", path, entries.len())?;
    AllowList::parse(entries)
        .map_err(|error| NetworkFault::new(format!("{path}[{}]", error.index), error.to_string()))
}

fn places(path: &str, texts: &[String]) -> Result<Vec<SecretPlace>, NetworkFault> {
    at_most(NetworkObject::HOSTS_MAX, "places", &format!("{path}.in"), texts.len())?;
    let parse = |(index, text): (usize, &String)| {
        SecretPlace::parse(text)
            .map_err(|why| NetworkFault::new(format!("{path}.in[{index}]"), why))
    };
    texts.iter().enumerate().map(parse).collect()
}
