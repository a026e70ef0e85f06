//! The rules of one network object: which key decides over a host, and which rule over a request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use cofferdam_core::NetworkObject;
use cofferdam_core::weakened::{self, Wall};

use super::check::{CheckedNetwork, CheckedSource, WithheldValues};
use super::decision::{RequestPlan, RuleDecision, RuleRefusal, RuledHead};
use super::edits::{HeadWriter, ask_for_a_searchable_answer};
use super::fault::{NetworkDenial, NetworkFault};
use super::host_rules::{CountedRule, HostRules};
use super::path::{canonical_path, folded_forms};
use crate::egress::hosts::allow_list::AllowList;
use crate::egress::hosts::entry::{AllowEntry, NamedHosts};
use crate::egress::hosts::literal::AskedHost;
use crate::egress::secret::placeholder::Placeholders;
use crate::egress::secret::service::ServiceSecrets;
use crate::egress::secret::set::{NetworkSecret, SecretSet};

/// Methods that are never sent: an answer to TRACE repeats what is added on the way.
const NEVER_SENT: [&str; 2] = ["TRACE", "CONNECT"];

/// What a network object means for the requests of one sandbox or workspace.
#[derive(Debug, Default)]
pub struct NetworkRules {
    allow: AllowList,
    hosts: Vec<HostRules>,
    secrets: SecretSet,
}

/// What decides over requests to a host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRoute {
    /// Rules, request by request.
    Ruled {
        /// Whether they go without TLS.
        is_plain: bool,
    },
    /// The allow-list: what is sent passes untouched.
    Listed,
    /// Nothing names the host and port.
    Unlisted,
}

/// Hosts that rules decide over, behind TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuledName {
    /// One name.
    Name(String),
    /// All names below this one.
    Below(String),
    /// The addresses that share so many leading bits with this one.
    Block(IpAddr, u8),
}

impl NetworkRules {
    /// A network without rules.
    pub fn of_hosts(allow: AllowList) -> Self {
        Self { allow, ..Self::default() }
    }

    /// Checks what can be checked without the service's secrets.
    ///
    /// # Errors
    /// The first wrong field.
    pub fn check(object: &NetworkObject) -> Result<(), NetworkFault> {
        CheckedNetwork::parse(object, WithheldValues::Refused).map(drop)
    }

    /// Checks what can be checked before the policy: all but which secrets of the service the holder of `token`
    /// may use.
    ///
    /// # Errors
    /// The first wrong field.
    pub fn check_for(
        object: &NetworkObject,
        service: &ServiceSecrets,
        token: &str,
    ) -> Result<(), NetworkFault> {
        let (placeholders, withheld) = (Placeholders::default(), WithheldValues::Refused);
        match Self::resolve(object, service, token, &placeholders, withheld) {
            Err(NetworkDenial::Invalid(fault)) => Err(fault),
            Ok(_) | Err(NetworkDenial::SecretDenied { .. }) => Ok(()),
        }
    }

    /// Reads `object` for the holder of `token`. `placeholders` has one for each secret of `secret_env`.
    /// With [`WithheldValues::Missing`] a secret that is no longer there makes the requests fail that need
    /// it.
    ///
    /// # Errors
    /// The first wrong field, or the first secret that the holder may not use.
    pub fn resolve(
        object: &NetworkObject,
        service: &ServiceSecrets,
        token: &str,
        placeholders: &Placeholders,
        withheld: WithheldValues,
    ) -> Result<Self, NetworkDenial> {
        let checked = CheckedNetwork::parse(object, withheld)?;
        let mut secrets = Vec::new();
        for (name, secret) in &checked.secrets {
            let (value, hosts) = match &secret.source {
                CheckedSource::Request { value, hosts } => (value.clone(), hosts.clone()),
                CheckedSource::Service => match service.find(name, token) {
                    Some((value, hosts)) if checked.check_hosts(name, &hosts).is_ok() => {
                        (Some(value), hosts)
                    }
                    Some((_, hosts)) if withheld == WithheldValues::Refused => {
                        checked.check_hosts(name, &hosts)?;
                        (None, hosts)
                    }
                    None if withheld == WithheldValues::Refused => {
                        return Err(NetworkDenial::SecretDenied { name: name.clone() });
                    }
                    Some((_, hosts)) => (None, hosts),
                    None => (None, AllowList::default()),
                },
            };
            let placeholder =
                checked.placeholders.contains(name).then(|| placeholders.of(name)).flatten();
            let (name, places) = (name.clone(), secret.places.clone());
            secrets.push(NetworkSecret { name, value, hosts, places, placeholder });
        }
        let secrets = SecretSet::new(secrets)
            .ok_or_else(|| NetworkFault::new("secrets", "together too long to be searched for"))?;
        Ok(Self { allow: checked.allow, hosts: checked.hosts, secrets })
    }

    /// Returns `object` reduced to `hosts`. A host keeps the rules of the key that decides for it. A host without rules
    /// goes into `allow`, if `allow` is empty or covers it.
    ///
    /// # Errors
    /// The first invalid field, or the first of `hosts` that is not a valid entry.
    pub fn narrowed(
        object: &NetworkObject,
        hosts: &[String],
    ) -> Result<NetworkObject, NetworkFault> {
        let checked = CheckedNetwork::parse(object, WithheldValues::Missing)?;
        let (allow, rules) = Default::default();
        let mut narrowed = NetworkObject { allow, rules, ..object.clone() };
        for host in hosts {
            let entry = AllowEntry::parse(host).map_err(|why| NetworkFault::new(host, why))?;
            // Both are in the order of the keys.
            let keys = checked.hosts.iter().zip(object.rules.values());
            let deciding = keys
                .filter(|(key, _)| key.entry.covers(&entry))
                .max_by_key(|(key, _)| key.entry.rank());
            match deciding {
                Some((_, rules)) => {
                    narrowed.rules.insert(host.clone(), rules.clone());
                }
                None if checked.allow.is_empty() || checked.allow.covers(&entry) => {
                    narrowed.allow.push(host.clone());
                }
                None => {}
            }
        }
        Ok(narrowed)
    }

    /// Whether there are rules.
    pub fn has_rules(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// The hosts that rules decide over behind TLS.
    pub fn tls_names(&self) -> Vec<RuledName> {
        let tls = self.hosts.iter().filter(|key| !key.is_plain);
        tls.map(|key| match key.entry.named() {
            NamedHosts::Name(name) => RuledName::Name(name.to_owned()),
            NamedHosts::Below(parent) => RuledName::Below(parent.to_owned()),
            NamedHosts::Block(first, prefix_bits) => RuledName::Block(first, prefix_bits),
        })
        .collect()
    }

    /// What decides over requests to `host` and `port`.
    pub fn route(&self, host: &AskedHost, port: u16) -> HostRoute {
        match self.host_rules(host, port) {
            Some(key) => HostRoute::Ruled { is_plain: key.is_plain },
            None if self.allow.allows(host, port) => HostRoute::Listed,
            None => HostRoute::Unlisted,
        }
    }

    /// Whether an entry names `host`, at whatever port.
    pub fn names(&self, host: &AskedHost) -> bool {
        self.allow.names(host) || self.hosts.iter().any(|key| key.entry.names(host))
    }

    /// The most specific key alone.
    fn host_rules(&self, host: &AskedHost, port: u16) -> Option<&HostRules> {
        let fitting = self.hosts.iter().filter(|key| key.entry.matches(host, port));
        fitting.max_by_key(|key| key.entry.rank())
    }

    /// Whether the name of a host holds a placeholder, so that it may not even be resolved.
    pub fn is_placeholder_in_host(&self, host: &AskedHost) -> bool {
        self.secrets.is_in_host(host)
    }

    /// Whether the head of a request that no rule decides over, or the trailers of any, hold a
    /// placeholder, so that nothing of it may be sent.
    pub fn holds_placeholder(&self, target: &str, headers: &HeaderMap) -> bool {
        self.secrets.is_in_target(target)
            || headers.iter().any(|(name, value)| self.secrets.is_in_header(name, value.as_bytes()))
    }

    /// Decides over a request to `host` and `port`, and counts it for `requests_max` if it is allowed.
    pub fn decide(&self, host: &AskedHost, port: u16, head: &RuledHead<'_>) -> RuleDecision {
        let refused = |rule, refusal| RuleDecision { rule, plan: Err(refusal) };
        let (raw, query) = match head.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (head.target, None),
        };
        let is_sent = !NEVER_SENT.iter().any(|method| head.method.eq_ignore_ascii_case(method))
            || weakened::lacks(Wall::Rules);
        let Some(path) = canonical_path(raw).filter(|_| is_sent) else {
            return refused(None, RuleRefusal::BadRequest);
        };
        let folded = folded_forms(&path);
        let rules = self.host_rules(host, port).map_or(&[][..], |key| &key.rules);
        let fits = |counted: &CountedRule| counted.rule.fits(head.method, &path, &folded);
        let Some((index, counted)) = rules.iter().enumerate().find(|(_, rule)| fits(rule)) else {
            return refused(None, RuleRefusal::NoRule);
        };
        if counted.rule.is_denial {
            return refused(Some(index), RuleRefusal::RuleDenied);
        }
        let allows_websocket = counted.rule.allows_websocket || weakened::lacks(Wall::Rules);
        if head.is_websocket && !allows_websocket {
            return refused(Some(index), RuleRefusal::WebSocket);
        }
        let writer = HeadWriter::new(&self.secrets, host, port);
        let plan = self.plan(writer, counted, (&path, query), head.headers);
        let plan =
            plan.and_then(
                |plan| {
                    if counted.count() { Ok(plan) } else { Err(RuleRefusal::RequestsMax) }
                },
            );
        RuleDecision { rule: Some(index), plan }
    }

    fn plan(
        &self,
        writer: HeadWriter<'_>,
        counted: &CountedRule,
        (path, query): (&str, Option<&str>),
        headers: &HeaderMap,
    ) -> Result<RequestPlan, RuleRefusal> {
        let rule = &counted.rule;
        let target = writer.target(path, query, rule)?;
        let mut headers = writer.headers(headers, rule)?;
        let secrets = writer.written();
        let has_secret = !secrets.is_empty();
        if has_secret {
            ask_for_a_searchable_answer(&mut headers);
        }
        let search = has_secret.then(|| Arc::clone(self.secrets.search()));
        Ok(RequestPlan { target, headers, secrets, limits: rule.limits, search })
    }
}
