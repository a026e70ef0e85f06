//! The rules of one key.

use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam_core::{NetworkObject, RuleObject};

use super::fault::NetworkFault;
use super::rule::Rule;
use crate::egress::hosts::entry::AllowEntry;

/// The port of `http`, whose requests are plain.
const PORT_PLAIN: u16 = 80;

/// The rules of one key.
#[derive(Debug)]
pub struct HostRules {
    pub entry: AllowEntry,
    /// Where the key stands in the network object.
    pub path: String,
    /// Whether requests go without TLS.
    pub is_plain: bool,
    pub rules: Vec<CountedRule>,
}

/// A rule, and how many requests it has allowed.
#[derive(Debug)]
pub struct CountedRule {
    pub rule: Rule,
    allowed: AtomicU64,
}

impl HostRules {
    /// Parses the rules of `key`.
    pub fn parse(key: &str, objects: &[RuleObject]) -> Result<Self, NetworkFault> {
        let path = format!("rules.{}", key.escape_debug());
        let entry = AllowEntry::parse(key).map_err(|why| NetworkFault::new(&path, why))?;
        if objects.len() > NetworkObject::RULES_MAX {
            let words = format!("more than {} rules", NetworkObject::RULES_MAX);
            return Err(NetworkFault::new(path, words));
        }
        let parse = |(index, object)| Rule::parse(&format!("{path}[{index}]"), object);
        let rules: Vec<Rule> = objects.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        let is_plain = is_plain(&path, &entry, &rules)?;
        let count = |rule| CountedRule { rule, allowed: AtomicU64::new(0) };
        Ok(Self { entry, path, is_plain, rules: rules.into_iter().map(count).collect() })
    }
}

/// Whether requests under a key go without TLS: its rules agree on that.
fn is_plain(path: &str, entry: &AllowEntry, rules: &[Rule]) -> Result<bool, NetworkFault> {
    let fault =
        |index: usize, words: &str| Err(NetworkFault::new(format!("{path}[{index}].plain"), words));
    if entry.port() == Some(PORT_PLAIN) {
        return match rules.iter().position(|rule| rule.plain == Some(false)) {
            Some(index) => fault(index, "requests to port 80 are plain"),
            None => Ok(true),
        };
    }
    if let (true, Some(index)) = (
        entry.port().is_none() || entry.is_block(),
        rules.iter().position(|rule| rule.plain.is_none()),
    ) {
        return fault(index, "a key with several ports or addresses says whether it is plain");
    }
    let is_plain = |rule: &Rule| rule.plain.unwrap_or_default();
    let first = rules.first().is_some_and(is_plain);
    match rules.iter().position(|rule| is_plain(rule) != first) {
        Some(index) => fault(index, "all rules of a host are plain or none is"),
        None => Ok(first),
    }
}

impl CountedRule {
    /// Counts one more request, unless the rule has allowed as many as it may.
    pub fn count(&self) -> bool {
        let requests_max = self.rule.requests_max.unwrap_or(u64::MAX);
        let more = |allowed: u64| (allowed < requests_max).then(|| allowed + 1);
        self.allowed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}
