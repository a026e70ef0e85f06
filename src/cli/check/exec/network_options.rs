//! What a command may reach: hosts, rules, and secrets that are added behind the sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use zeroize::Zeroizing;

use crate::cli::failure::Failure;
use crate::config::{exec_terms, read_network_object};
use crate::egress::EgressGrant;
use crate::egress::rules::WithheldValues;
use crate::egress::rules::template::RuleTemplate;
use crate::egress::secret::Placeholders;
use cofferdam_core::{
    GivenSecret, NetworkObject, SECRET_BYTES_MAX, SecretObject, SecretValue, is_secret_name,
};

/// What the command may reach.
#[derive(Debug, Default, Args)]
pub struct NetworkOptions {
    /// A host that the command may reach, port 443 by default
    #[arg(long, value_name = "HOST[:PORT]")]
    allow: Vec<String>,
    /// A file in JSON, YAML or TOML with hosts, rules and secrets
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// A secret, for these hosts or those whose rules name it
    #[arg(long, value_name = "NAME=env:VAR|file:PATH|fd:N[@HOST,…]")]
    secret: Vec<String>,
    /// A variable that holds a placeholder of a secret
    #[arg(long, value_name = "VAR=NAME")]
    secret_env: Vec<String>,
}

impl NetworkOptions {
    /// What the command, which has the variables `env`, may reach, if anything.
    ///
    /// # Errors
    /// An option is wrong. No message has the value of a secret.
    pub fn grant(&self, env: &BTreeMap<String, String>) -> Result<Option<EgressGrant>, Failure> {
        let object = self.object()?;
        if object == NetworkObject::default() {
            return Ok(None);
        }
        if let Some(name) = object.secret_env.keys().find(|name| env.contains_key(*name)) {
            return Err(Failure::option("--secret-env", format!("{name} is in --env too")));
        }
        let (terms, problems) = exec_terms(std::env::vars_os());
        if !problems.0.is_empty() {
            return Err(Failure::Usage(problems.to_string()));
        }
        let placeholders = Placeholders::new_for(&object);
        let network = terms.network(&object, "", &placeholders, WithheldValues::Refused);
        let network = network.map_err(|denial| Failure::option("--network", denial))?;
        Ok(Some(terms.grant(network, terms.log(), None)))
    }

    /// The object that all options mean together.
    fn object(&self) -> Result<NetworkObject, Failure> {
        let mut object = match &self.network {
            Some(path) => read_network_object(path).map_err(|fault| {
                Failure::option("--network", format!("{}: {fault}", path.display()))
            })?,
            None => NetworkObject::default(),
        };
        object.allow.extend(self.allow.iter().cloned());
        for text in &self.secret {
            add_secret(&mut object, text).map_err(|fault| Failure::option("--secret", fault))?;
        }
        for text in &self.secret_env {
            let (variable, name) = text
                .split_once('=')
                .ok_or_else(|| Failure::option("--secret-env", "want VAR=NAME"))?;
            object.secret_env.insert(variable.to_owned(), name.to_owned());
        }
        Ok(object)
    }
}

/// Adds the secret that `NAME=SOURCE[@HOST,…]` means.
fn add_secret(object: &mut NetworkObject, text: &str) -> Result<(), String> {
    // The value may be the secret itself, so the error does not show it.
    let (name, source) = text.split_once('=').ok_or("want NAME=env:VAR, file:PATH or fd:N")?;
    if !is_secret_name(name) {
        return Err("want NAME=…, a name of letters, digits and _".to_owned());
    }
    let fault = |words: &str| format!("{name}: {words}");
    let (source, hosts) = match source.rsplit_once('@') {
        Some((source, hosts)) => (source, hosts.split(',').map(str::to_owned).collect()),
        None => (source, hosts_that_name(object, name)),
    };
    if hosts.is_empty() {
        return Err(fault("no rule names it; want @HOST"));
    }
    let value = match source.split_once(':') {
        Some(("env", variable)) => {
            std::env::var(variable).map_err(|_| "no such variable, or not UTF-8".to_owned())
        }
        Some(("file", path)) => without_newline(read(Path::new(path), SECRET_BYTES_MAX as u64 + 1)),
        Some(("fd", number)) if number.parse::<u16>().is_ok() => {
            let path = format!("/proc/self/fd/{number}");
            without_newline(read(Path::new(&path), SECRET_BYTES_MAX as u64 + 1))
        }
        _ => Err("want env:VAR, file:PATH or fd:N".to_owned()),
    }
    .map_err(|words| fault(&words))?;
    let value = SecretValue::new(value).map_err(|error| fault(&error.to_string()))?;
    let known: &mut SecretObject = object.secrets.entry(name.to_owned()).or_default();
    if !known.value.is_of_service() {
        return Err(fault("it has a value already"));
    }
    (known.value, known.hosts) = (GivenSecret::Value(Arc::new(value)), Some(hosts));
    Ok(())
}

/// The keys of rules with a template that names the secret `name`.
fn hosts_that_name(object: &NetworkObject, name: &str) -> Vec<String> {
    let names = |text: &String| {
        RuleTemplate::parse(text).is_ok_and(|template| template.secrets().any(|used| used == name))
    };
    let mut hosts = BTreeSet::new();
    for (key, rules) in &object.rules {
        let mut texts =
            rules.iter().flat_map(|rule| rule.headers.values().chain(rule.query.values()));
        if texts.any(names) {
            hosts.insert(key.clone());
        }
    }
    hosts.into_iter().collect()
}

fn without_newline(text: Result<Zeroizing<String>, String>) -> Result<String, String> {
    let mut text = text?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(std::mem::take(&mut *text))
}

fn read(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(String::new());
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max {
        return Err(format!("longer than {bytes_max} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_is_for_its_hosts_or_for_those_whose_rules_name_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("key");
        fs::write(&file, "value-of-file\n").unwrap();
        let source = format!("k=file:{}", file.display());
        let rules =
            r#"{"rules": {"a.test": [{"headers": {"x-a": "{{secret.k}}"}}], "b.test": [{}]}}"#;
        let with = |text: &str| {
            let mut object: NetworkObject = serde_json::from_str(rules).unwrap();
            add_secret(&mut object, text).map(|()| object.secrets["k"].clone())
        };
        let secret = with(&source).unwrap();
        assert_eq!(secret.hosts, Some(vec!["a.test".to_owned()]));
        let GivenSecret::Value(value) = secret.value else { panic!("no value") };
        assert_eq!(value.expose(), "value-of-file");
        let hosts = with(&format!("{source}@c.test,d.test:80")).unwrap().hosts;
        assert_eq!(hosts, Some(vec!["c.test".to_owned(), "d.test:80".to_owned()]));
        for text in [
            "k",
            "k=do-not-show",
            "k=env:NOT_SET_ANYWHERE",
            "k=file:/none",
            "other=env:PATH",
            "k=fd:x",
        ] {
            let fault = with(text).unwrap_err();
            assert!(!fault.contains("do-not-show"), "{text}: {fault}");
        }
    }
}
