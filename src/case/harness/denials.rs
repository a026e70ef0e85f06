//! What a Case that came by HTTP may not use (pure).

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::network::variable_of;
use crate::case::file::{Case, CaseHarness, HarnessKind, HarnessNetwork, SourceOrigin};
use crate::egress::AllowList;
use crate::egress::hosts::address::is_public;
use crate::egress::hosts::entry::{AllowEntry, NamedHosts};
use crate::egress::hosts::literal::AskedHost;
use crate::evaluation::web_url::WebUrl;

/// Names that stand for this host everywhere.
const LOCAL_NAMES: [&str; 2] = ["localhost", "localhost.localdomain"];

/// What Cases by HTTP may use.
#[derive(Debug, Clone, Copy)]
pub struct HttpCaseRules<'a> {
    /// Hosts that may be reached although they are not public: `CASES_HOSTS_ALLOW`.
    pub hosts_allow: &'a AllowList,
    /// Hosts that environments and agents may reach: `CASES_EGRESS_ALLOW`.
    pub egress_allow: &'a AllowList,
    /// Variables of the service that secrets may name: `CASES_HARNESS_ENV`.
    pub variables: &'a [String],
    /// Directories of the service's host that it may read, without links: the Case's own, or the roots.
    pub readable: &'a [PathBuf],
}

/// A part of a Case that is refused, with status 403.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseDenial {
    /// The key, such as `harnesses.mine.api_key_env`.
    pub path: String,
    /// The code of the answer.
    pub code: &'static str,
    /// The same in words.
    pub message: String,
}

impl CaseDenial {
    fn new(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.into(), code, message: message.into() }
    }
}

const SECRET: &str = "policy.secret_denied";
const NETWORK: &str = "policy.network_denied";
const PATH: &str = "policy.path_denied";
const ENV: &str = "policy.env_denied";

/// All that a Case by HTTP may not use. Names are judged once more by their addresses, when they are connected to.
pub fn http_denials(case: &Case, rules: &HttpCaseRules<'_>) -> Vec<CaseDenial> {
    let mut denials = Vec::new();
    denied_files(case, rules, &mut denials);
    if let Some(environment) = &case.environment {
        for (index, host) in environment.egress.iter().flatten().enumerate() {
            denied_reach(format!("environment.egress[{index}]"), host, rules, &mut denials);
        }
    }
    let passed = case.container.iter().flat_map(|container| &container.env_passthrough);
    if passed.count() > 0 {
        let message = "a Case by HTTP gets no variables of the service";
        denials.push(CaseDenial::new("container.env_passthrough", ENV, message));
    }
    for (name, harness) in &case.harnesses {
        denied_harness(&format!("harnesses.{name}"), harness, rules, &mut denials);
    }
    denials
}

fn denied_files(case: &Case, rules: &HttpCaseRules<'_>, denials: &mut Vec<CaseDenial>) {
    let mut deny = |path: String, file: &Path| {
        if !rules.readable.iter().any(|directory| file.starts_with(directory)) {
            denials.push(CaseDenial::new(path, PATH, "the path is outside of the Case"));
        }
    };
    for (index, file) in case.task.instruction_files.iter().enumerate() {
        deny(format!("task.instruction_files[{index}]"), file);
    }
    let origin = case.source.as_ref().and_then(|source| source.origin.as_ref());
    let repo = match origin {
        Some(SourceOrigin::Path(path)) => {
            deny("source.path".to_owned(), path);
            None
        }
        Some(SourceOrigin::Repo { repo, .. }) => Some(("source.repo", repo)),
        None => None,
    };
    let fixtures = case.fixtures.as_ref().map(|fixtures| ("fixtures.repo", &fixtures.repo));
    let repos: Vec<_> = repo.into_iter().chain(fixtures).collect();
    for (path, repo) in &repos {
        if repo.starts_with('/') {
            deny((*path).to_owned(), Path::new(repo));
        }
    }
    for (path, repo) in repos {
        if let Ok(url) = WebUrl::parse(repo) {
            denied_host(path.to_owned(), &entry_of(&url), rules, denials);
        }
    }
}

fn denied_harness(
    path: &str,
    harness: &CaseHarness,
    rules: &HttpCaseRules<'_>,
    denials: &mut Vec<CaseDenial>,
) {
    if let Some(HarnessKind::Openai { base_url, api_key_env, .. }) = &harness.kind {
        if api_key_env.is_some() {
            let message = "a key by HTTP is a secret of the service: 'secret'";
            denials.push(CaseDenial::new(format!("{path}.api_key_env"), SECRET, message));
        }
        if let Some(url) = base_url.as_ref().and_then(|url| WebUrl::parse(url).ok()) {
            denied_host(format!("{path}.base_url"), &entry_of(&url), rules, denials);
        }
    }
    if let Some(HarnessKind::Job { request }) = &harness.kind
        && let Some(network) = request.pointer("/policy/network")
    {
        denied_network(&format!("{path}.policy.network"), network, rules, denials);
    }
    match &harness.network {
        HarnessNetwork::Egress(hosts) => {
            for (index, host) in hosts.iter().enumerate() {
                denied_reach(format!("{path}.egress[{index}]"), host, rules, denials);
            }
        }
        HarnessNetwork::Object(object) => {
            denied_network(&format!("{path}.network"), object, rules, denials);
        }
    }
}

fn denied_network(
    path: &str,
    object: &Value,
    rules: &HttpCaseRules<'_>,
    denials: &mut Vec<CaseDenial>,
) {
    let allow = object.get("allow").and_then(Value::as_array);
    for (index, host) in allow.into_iter().flatten().enumerate() {
        let host = host.as_str().unwrap_or_default();
        denied_reach(format!("{path}.allow[{index}]"), host, rules, denials);
    }
    let map = |key: &str| object.get(key).and_then(Value::as_object);
    for host in map("rules").into_iter().flat_map(|hosts| hosts.keys()) {
        denied_reach(format!("{path}.rules.{host}"), host, rules, denials);
    }
    for (name, secret) in map("secrets").into_iter().flatten() {
        let Some(value) = secret.get("value") else { continue };
        let variable = variable_of(value).unwrap_or_default();
        if !rules.variables.iter().any(|allowed| allowed == variable) {
            let message = format!("the variable '{variable}' is not for Cases (CASES_HARNESS_ENV)");
            denials.push(CaseDenial::new(format!("{path}.secrets.{name}.value"), ENV, message));
        }
    }
}

/// Notes a host of an environment or an agent that the service does not allow.
fn denied_reach(
    path: String,
    host: &str,
    rules: &HttpCaseRules<'_>,
    denials: &mut Vec<CaseDenial>,
) {
    let count = denials.len();
    denied_host(path.clone(), host, rules, denials);
    let Ok(entry) = AllowEntry::parse(host) else { return };
    if denials.len() == count && !rules.egress_allow.covers(&entry) {
        let message = format!("'{host}' is not among the hosts for Cases (CASES_EGRESS_ALLOW)");
        denials.push(CaseDenial::new(path, NETWORK, message));
    }
}

/// Notes a host that is plainly not public, unless the service allows it.
fn denied_host(path: String, host: &str, rules: &HttpCaseRules<'_>, denials: &mut Vec<CaseDenial>) {
    let Ok(entry) = AllowEntry::parse(host) else { return };
    let is_private = match entry.named() {
        NamedHosts::Name(name) | NamedHosts::Below(name) => {
            LOCAL_NAMES.contains(&name) || name.ends_with(".localhost")
        }
        NamedHosts::Block(first, _) => !is_public(first),
    };
    if is_private && !is_allowed(&entry, rules.hosts_allow) {
        let message = format!("'{host}' is not public (CASES_HOSTS_ALLOW)");
        denials.push(CaseDenial::new(path, NETWORK, message));
    }
}

/// Whether `hosts_allow` names the entry; one of its entries without a port is for all ports.
fn is_allowed(entry: &AllowEntry, hosts_allow: &AllowList) -> bool {
    let asked = match entry.named() {
        NamedHosts::Name(name) => AskedHost::parse(name),
        NamedHosts::Block(address, _) if !entry.is_block() => Some(AskedHost::Address(address)),
        NamedHosts::Below(_) | NamedHosts::Block(..) => None,
    };
    let is_permitted = |(host, port): (AskedHost, u16)| hosts_allow.permits(&host, port);
    hosts_allow.covers(entry) || asked.zip(entry.port()).is_some_and(is_permitted)
}

/// The entry that names the host and port of a URL.
pub(super) fn entry_of(url: &WebUrl) -> String {
    format!("{}:{}", url.host(), url.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::file::load_case;

    const REACHED: [&str; 4] = ["pypi.org", "a.example", "10.0.0.0/8:*", "127.0.0.1:80"];

    fn denied(yaml: &str, hosts_allow: &[&str]) -> Vec<(String, &'static str)> {
        denied_beyond(yaml, hosts_allow, &REACHED)
    }

    fn denied_beyond(
        yaml: &str,
        hosts_allow: &[&str],
        egress_allow: &[&str],
    ) -> Vec<(String, &'static str)> {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("src")).unwrap();
        let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
        std::fs::write(place.path().join("case.yaml"), format!("{head}{yaml}")).unwrap();
        let case = load_case(place.path()).unwrap().case;
        let list = |hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            AllowList::parse(&hosts).unwrap()
        };
        let directory = place.path().canonicalize().unwrap();
        let rules = HttpCaseRules {
            hosts_allow: &list(hosts_allow),
            egress_allow: &list(egress_allow),
            variables: &["ALLOWED".to_owned()],
            readable: &[directory],
        };
        let denials = http_denials(&case, &rules);
        denials.into_iter().map(|denial| (denial.path, denial.code)).collect()
    }

    #[test]
    fn what_a_posted_case_may_not_use_is_named_by_its_key() {
        for (yaml, wanted) in [
            ("source: {path: src}\n", None),
            ("source: {path: /usr}\n", Some(("source.path", PATH))),
            ("source: {repo: /srv/git/a, commit: main}\n", Some(("source.repo", PATH))),
            ("source: {repo: a/b, commit: main}\n", None),
            ("source: {repo: 'http://10.0.0.1/a', commit: main}\n", Some(("source.repo", NETWORK))),
            (
                "fixtures: {repo: 'https://localhost/a', commit: main}\n",
                Some(("fixtures.repo", NETWORK)),
            ),
            (
                "container: {image: i, env_passthrough: [A]}\n",
                Some(("container.env_passthrough", ENV)),
            ),
            ("environment: {egress: [pypi.org]}\n", None),
            ("environment: {egress: ['127.0.0.1:80']}\n", Some(("environment.egress[0]", NETWORK))),
            (
                "harnesses: {h: {kind: openai, api_key_env: KEY}}\n",
                Some(("harnesses.h.api_key_env", SECRET)),
            ),
            ("harnesses: {h: {kind: openai, secret: k, base_url: 'https://a.example/v1'}}\n", None),
            (
                "harnesses: {h: {kind: openai, base_url: 'http://[::1]:8000/v1'}}\n",
                Some(("harnesses.h.base_url", NETWORK)),
            ),
            (
                "harnesses: {h: {kind: command, argv: [a], egress: [a.example, '*.localhost']}}\n",
                Some(("harnesses.h.egress[1]", NETWORK)),
            ),
            (
                "harnesses: {h: {kind: command, argv: [a], network: {allow: [192.168.0.0/16]}}}\n",
                Some(("harnesses.h.network.allow[0]", NETWORK)),
            ),
            (
                "harnesses: {h: {kind: command, argv: [a], network: {secrets: {k: {value: {env: KEY}, hosts: [a.example]}}}}}\n",
                Some(("harnesses.h.network.secrets.k.value", ENV)),
            ),
            (
                "harnesses: {h: {kind: job, command: {argv: [a]}, policy: {network: {allow: [10.0.0.1]}}}}\n",
                Some(("harnesses.h.policy.network.allow[0]", NETWORK)),
            ),
            (
                "harnesses: {h: {kind: command, argv: [a], network: {secrets: {k: {value: {env: ALLOWED}, hosts: [a.example]}}}}}\n",
                None,
            ),
        ] {
            let wanted: Vec<_> =
                wanted.into_iter().map(|(path, code)| (path.to_owned(), code)).collect();
            assert_eq!(denied(yaml, &[]), wanted, "{yaml}");
        }
    }

    #[test]
    fn environments_and_agents_reach_only_what_the_service_lets_cases_reach() {
        for (yaml, path) in [
            ("environment: {egress: [pypi.org]}\n", "environment.egress[0]"),
            (
                "harnesses: {h: {kind: command, argv: [a], egress: [a.example]}}\n",
                "harnesses.h.egress[0]",
            ),
            (
                "harnesses: {h: {kind: command, argv: [a], network: {rules: {a.example: [{}]}}}}\n",
                "harnesses.h.network.rules.a.example",
            ),
        ] {
            assert_eq!(denied_beyond(yaml, &[], &REACHED), [], "{yaml}");
            let wanted = [(path.to_owned(), NETWORK)];
            assert_eq!(denied_beyond(yaml, &[], &["b.example"]), wanted, "{yaml}");
        }
        let cloned = "source: {repo: 'https://a.example/r', commit: main}\n";
        assert_eq!(denied_beyond(cloned, &[], &[]), []);
    }

    #[test]
    fn a_private_host_is_allowed_by_the_service_alone() {
        let yaml = "environment: {egress: ['10.1.2.3:8080']}\n";
        for (hosts_allow, is_denied) in [
            (&["10.1.2.3:8080"][..], false),
            (&["10.0.0.0/8"], false),
            (&["10.0.0.0/8:*"], false),
            (&["10.1.2.3:443"], true),
            (&["10.2.0.0/16"], true),
            (&["a.example"], true),
        ] {
            assert_eq!(!denied(yaml, hosts_allow).is_empty(), is_denied, "{hosts_allow:?}");
        }
    }
}
