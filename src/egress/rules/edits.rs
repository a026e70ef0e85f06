//! What is sent in place of what the program wrote: placeholders become values, and a rule's edits are made.

use std::cell::RefCell;
use std::collections::BTreeSet;

use axum::http::header::{
    ACCEPT_ENCODING, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    RANGE,
};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::Bytes;
use zeroize::Zeroizing;

use super::decision::RuleRefusal;
use super::query;
use super::rule::Rule;
use crate::egress::hosts::literal::AskedHost;
use crate::egress::secret::basic;
use crate::egress::secret::set::{NetworkSecret, SecretSet};
use cofferdam_core::weakened::{self, Wall};

/// Headers that ask for a part of an answer, or for none: such answers could not be searched.
const CONDITIONAL: [HeaderName; 6] =
    [RANGE, IF_RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

/// Writes the head of one request to `host` and `port`.
pub struct HeadWriter<'a> {
    pub secrets: &'a SecretSet,
    pub host: &'a AskedHost,
    pub port: u16,
    /// The names of the secrets that were written.
    written: RefCell<BTreeSet<&'a str>>,
}

impl<'a> HeadWriter<'a> {
    pub fn new(secrets: &'a SecretSet, host: &'a AskedHost, port: u16) -> Self {
        Self { secrets, host, port, written: RefCell::default() }
    }

    /// The names of the secrets that were written, sorted.
    pub fn written(self) -> Vec<String> {
        self.written.into_inner().into_iter().map(str::to_owned).collect()
    }

    /// Returns the headers that are sent for `headers` under `rule`.
    pub fn headers(&self, headers: &HeaderMap, rule: &Rule) -> Result<HeaderMap, RuleRefusal> {
        let mut sent = headers.clone();
        for name in rule.removed_headers.iter().chain(rule.headers.iter().map(|(name, _)| name)) {
            sent.remove(name);
        }
        for (name, value) in &mut sent {
            if self.secrets.holds_placeholder(name.as_str().as_bytes()) {
                return Err(RuleRefusal::SecretHost);
            }
            if let Some(written) = self.header(name, value.as_bytes())? {
                *value = sensitive(written)?;
            }
        }
        for (name, template) in &rule.headers {
            let value = template.render(|name| self.value_of(name))?;
            let has_secret = template.secrets().next().is_some();
            let mut value = shared(Zeroizing::new(value.as_bytes().to_vec()))?;
            value.set_sensitive(has_secret);
            sent.insert(name, value);
        }
        Ok(sent)
    }

    /// Returns the value of the header `name` with the values of its placeholders, if it has any.
    fn header(
        &self,
        name: &HeaderName,
        value: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, RuleRefusal> {
        let value_of = |secret: &'a NetworkSecret| {
            self.placed(secret, secret.places.iter().any(|place| place.is_header(name)))
        };
        let Some(pair) = basic::decode(value) else {
            return self.secrets.substitute(value, value_of);
        };
        let substituted = self.secrets.substitute(&pair, value_of)?;
        match substituted {
            Some(pair) => Ok(Some(basic::encode(&pair))),
            None => self.secrets.substitute(value, value_of),
        }
    }

    /// Returns the path and query that are sent for the canonical `path` and `query`.
    pub fn target(
        &self,
        path: &str,
        query: Option<&str>,
        rule: &Rule,
    ) -> Result<PathAndQuery, RuleRefusal> {
        if self.secrets.holds_placeholder(path.as_bytes()) || self.secrets.is_in_host(self.host) {
            return Err(RuleRefusal::SecretHost);
        }
        let mut pairs: Vec<Zeroizing<String>> = Vec::new();
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let key = query::decode(query::split_pair(pair).0);
            if rule.query.iter().all(|(set, _)| set.as_bytes() != key) {
                pairs.push(self.pair(pair, &key)?);
            }
        }
        for (key, template) in &rule.query {
            let value = template.render(|name| self.value_of(name))?;
            pairs.push(encoded_pair(key.as_bytes(), value.as_bytes()));
        }
        let bytes: usize = pairs.iter().map(|pair| pair.len() + 1).sum();
        let mut target = Zeroizing::new(Vec::with_capacity(path.len() + bytes));
        target.extend_from_slice(path.as_bytes());
        for (index, pair) in pairs.iter().enumerate() {
            target.push(if index == 0 { b'?' } else { b'&' });
            target.extend_from_slice(pair.as_bytes());
        }
        PathAndQuery::from_maybe_shared(Bytes::from_owner(target))
            .map_err(|_| RuleRefusal::BadRequest)
    }

    /// Returns what is sent for a `pair` with this `key`.
    fn pair(&self, pair: &str, key: &[u8]) -> Result<Zeroizing<String>, RuleRefusal> {
        let kept = || Zeroizing::new(pair.to_owned());
        let decoded = query::decode(pair);
        if !self.secrets.holds_placeholder(&decoded)
            && !self.secrets.holds_placeholder(pair.as_bytes())
        {
            return Ok(kept());
        }
        let (_, Some(value)) = query::split_pair(pair) else { return Err(RuleRefusal::SecretHost) };
        if self.secrets.holds_placeholder(key) {
            return Err(RuleRefusal::SecretHost);
        }
        let value_of = |secret: &'a NetworkSecret| {
            self.placed(secret, secret.places.iter().any(|place| place.is_query(key)))
        };
        let substituted = self.secrets.substitute(&query::decode(value), value_of)?;
        Ok(substituted.map_or_else(kept, |value| encoded_pair(key, &value)))
    }

    /// The value of the secret that a template names.
    fn value_of(&self, name: &str) -> Result<&'a str, RuleRefusal> {
        let secret = self.secrets.named(name).ok_or(RuleRefusal::SecretMissing)?;
        // That it is for this host was checked with the rule.
        self.known(secret)
    }

    /// The value of a secret whose placeholder was found, in its place or not.
    fn placed(&self, secret: &'a NetworkSecret, is_in_place: bool) -> Result<&'a str, RuleRefusal> {
        let is_for = is_in_place && secret.hosts.allows(self.host, self.port);
        if is_for || weakened::lacks(Wall::Placeholder) {
            self.known(secret)
        } else {
            Err(RuleRefusal::SecretHost)
        }
    }

    fn known(&self, secret: &'a NetworkSecret) -> Result<&'a str, RuleRefusal> {
        let value = secret.value.as_ref().ok_or(RuleRefusal::SecretMissing)?;
        self.written.borrow_mut().insert(&secret.name);
        Ok(value.expose())
    }
}

/// Asks for an answer that can be searched.
pub fn ask_for_a_searchable_answer(headers: &mut HeaderMap) {
    for name in CONDITIONAL {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

fn encoded_pair(key: &[u8], value: &[u8]) -> Zeroizing<String> {
    let bytes = query::encoded_bytes_max(key) + query::encoded_bytes_max(value) + 1;
    let mut pair = Zeroizing::new(String::with_capacity(bytes));
    query::encode(key, &mut pair);
    pair.push('=');
    query::encode(value, &mut pair);
    pair
}

fn sensitive(bytes: Zeroizing<Vec<u8>>) -> Result<HeaderValue, RuleRefusal> {
    let mut value = shared(bytes)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A value whose bytes are overwritten when the last that shares them is dropped.
fn shared(bytes: Zeroizing<Vec<u8>>) -> Result<HeaderValue, RuleRefusal> {
    HeaderValue::from_maybe_shared(Bytes::from_owner(bytes)).map_err(|_| RuleRefusal::BadRequest)
}
