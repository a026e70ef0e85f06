//! Which hosts provisioning reaches. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::variables::names_indexes;
use crate::case::file::{CaseEnvironment, EnvironmentKind};
use crate::evaluation::web_url::WebUrl;

/// The index of Python's packages, for a kind that uses one and is told of no other.
const PYTHON_INDEX: &str = "pypi.org:443";
/// The host of its files.
const PYTHON_FILES: &str = "files.pythonhosted.org:443";
/// Variables that replace the index of Python's packages.
const PIP_DEFAULT: [&str; 1] = ["PIP_INDEX_URL"];
const UV_DEFAULT: [&str; 2] = ["UV_DEFAULT_INDEX", "UV_INDEX_URL"];

/// The hosts that provisioning reaches, as entries of an allow-list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReachedHosts {
    /// The Case names them.
    OfCase(Vec<String>),
    /// Those of the configured indexes.
    OfIndexes(Vec<String>),
}

impl ReachedHosts {
    /// The hosts that `environment` reaches with `variables` of ours: `egress`, else those of the configured indexes,
    /// and none for commands.
    pub fn of(environment: &CaseEnvironment, variables: &BTreeMap<String, String>) -> Self {
        match (&environment.egress, environment.kind) {
            (Some(hosts), _) => Self::OfCase(hosts.clone()),
            (None, EnvironmentKind::Command) => Self::OfIndexes(Vec::new()),
            (None, EnvironmentKind::PipVenv) => {
                Self::OfIndexes(index_hosts(&PIP_DEFAULT, variables))
            }
            (None, EnvironmentKind::Uv) => Self::OfIndexes(index_hosts(&UV_DEFAULT, variables)),
        }
    }

    /// The entries.
    pub fn entries(&self) -> &[String] {
        match self {
            Self::OfCase(entries) | Self::OfIndexes(entries) => entries,
        }
    }
}

/// The hosts of the indexes in `variables`, and those of Python's own unless one of `replacing` is among them.
fn index_hosts(replacing: &[&str], variables: &BTreeMap<String, String>) -> Vec<String> {
    let is_given = |name: &&str| variables.get(*name).is_some_and(|value| !value.trim().is_empty());
    let named = variables.iter().filter(|(name, _)| names_indexes(name));
    let mut hosts: BTreeSet<String> = named.flat_map(|(_, value)| hosts_in(value)).collect();
    if !replacing.iter().any(is_given) {
        hosts.insert(PYTHON_INDEX.to_owned());
    }
    if hosts.contains(PYTHON_INDEX) {
        hosts.insert(PYTHON_FILES.to_owned());
    }
    hosts.into_iter().collect()
}

/// The hosts and ports of the URLs in `value`, which may have names: `name=URL`.
fn hosts_in(value: &str) -> impl Iterator<Item = String> {
    let words = value.split([',', ' ', '\t', '\n']);
    words.filter_map(|word| {
        let url = match word.split_once('=') {
            Some((name, url)) if !name.contains(':') => url,
            _ => word,
        };
        let url = WebUrl::parse(url.split('#').next().unwrap_or_default()).ok()?;
        Some(format!("{}:{}", url.host(), url.port()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::provision::plan::environment_of;

    #[test]
    fn provisioning_reaches_what_the_case_names_or_the_configured_indexes() {
        use EnvironmentKind::{Command, PipVenv, Uv};
        let python = ["files.pythonhosted.org:443", "pypi.org:443"];
        let index = ("PIP_INDEX_URL", "http://i.example:8080/simple#x");
        for (kind, variables, wanted) in [
            (PipVenv, &[][..], &python[..]),
            (Uv, &[], &python),
            (Command, &[index], &[]),
            (PipVenv, &[index], &["i.example:8080"]),
            (PipVenv, &[("PIP_INDEX_URL", "")], &python),
            (PipVenv, &[("PIP_INDEX_URL", "https://pypi.org/simple")], &python),
            (Uv, &[("UV_INDEX_URL", "https://[::1]:9/simple")], &["[::1]:9"]),
            (
                Uv,
                &[
                    ("UV_DEFAULT_INDEX", "main=https://a.example/simple?x=1"),
                    ("UV_INDEX", "other=https://b.example https://c.example"),
                    ("UV_FIND_LINKS", "http://d.example/w,https://e.example"),
                ],
                &[
                    "a.example:443",
                    "b.example:443",
                    "c.example:443",
                    "d.example:80",
                    "e.example:443",
                ],
            ),
            (
                PipVenv,
                &[("PIP_EXTRA_INDEX_URL", "https://b.example\nhttps://c.example")],
                &["b.example:443", "c.example:443", python[0], python[1]],
            ),
            (
                PipVenv,
                &[
                    index,
                    ("npm_config_registry", "https://n.example"),
                    ("LANG_URL", "https://x.example"),
                ],
                &["i.example:8080", "n.example:443"],
            ),
        ] {
            let variables = variables.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            let reached = ReachedHosts::of(&environment_of(kind), &variables);
            assert_eq!(reached.entries(), wanted, "{kind:?} {variables:?}");
        }
    }

    #[test]
    fn the_hosts_of_a_case_replace_those_of_the_indexes() {
        for hosts in [vec![], vec!["a.example".to_owned()]] {
            for kind in [EnvironmentKind::Uv, EnvironmentKind::Command] {
                let mut environment = environment_of(kind);
                environment.egress = Some(hosts.clone());
                let reached = ReachedHosts::of(&environment, &BTreeMap::new());
                assert_eq!(reached, ReachedHosts::OfCase(hosts.clone()));
            }
        }
    }
}
