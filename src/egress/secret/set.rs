//! The secrets of one network.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderName;
use cofferdam_core::SecretValue;
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use super::basic;
use super::needle::NEEDLES_BYTES_MAX;
use super::place::SecretPlace;
use super::placeholder::{DIGITS, PREFIX, candidates};
use super::search::SecretSearch;
use crate::egress::hosts::allow_list::AllowList;
use crate::egress::hosts::literal::AskedHost;

/// How many bytes all spellings of a secret have together at most, for one byte of the secret.
const SPELLINGS_FACTOR_MAX: usize = 150;

/// A secret that requests of a network may hold.
#[derive(Debug)]
pub struct NetworkSecret {
    pub name: String,
    /// None if it is no longer known.
    pub value: Option<Arc<SecretValue>>,
    /// Where it may be sent.
    pub hosts: AllowList,
    /// Where a request may hold its placeholder.
    pub places: Vec<SecretPlace>,
    pub placeholder: Option<String>,
}

/// The secrets of one network.
#[derive(Debug, Default)]
pub struct SecretSet {
    secrets: Vec<NetworkSecret>,
    search: OnceLock<Arc<SecretSearch>>,
}

impl SecretSet {
    /// A set of `secrets`; none if searching for them together would take too much memory.
    pub fn new(secrets: Vec<NetworkSecret>) -> Option<Self> {
        let set = Self { secrets, search: OnceLock::new() };
        let bytes: usize = set.values().map(|value| value.expose().len()).sum();
        let is_small = bytes.saturating_mul(SPELLINGS_FACTOR_MAX) <= NEEDLES_BYTES_MAX;
        (is_small || set.search().bytes() <= NEEDLES_BYTES_MAX).then_some(set)
    }

    fn values(&self) -> impl Iterator<Item = &SecretValue> {
        self.secrets.iter().filter_map(|secret| secret.value.as_deref())
    }

    /// What finds all of them in answers.
    pub fn search(&self) -> &Arc<SecretSearch> {
        self.search.get_or_init(|| Arc::new(SecretSearch::new(self.values())))
    }

    /// The secret `name`.
    pub fn named(&self, name: &str) -> Option<&NetworkSecret> {
        self.secrets.iter().find(|secret| secret.name == name)
    }

    /// The secret that `text` stands for.
    fn behind(&self, text: &[u8]) -> Option<&NetworkSecret> {
        let is_its = |own: &String| own.as_bytes() == text;
        self.secrets.iter().find(|secret| secret.placeholder.as_ref().is_some_and(is_its))
    }

    /// Whether `text` holds a placeholder of these secrets.
    pub fn holds_placeholder(&self, text: &[u8]) -> bool {
        candidates(text).any(|(_, candidate)| self.behind(candidate).is_some())
    }

    /// Whether a header holds one, be it in credentials of `Basic`.
    pub fn is_in_header(&self, name: &HeaderName, value: &[u8]) -> bool {
        self.holds_placeholder(name.as_str().as_bytes())
            || self.holds_placeholder(value)
            || basic::decode(value).is_some_and(|pair| self.holds_placeholder(&pair))
    }

    /// Whether the name of a host holds one.
    pub fn is_in_host(&self, host: &AskedHost) -> bool {
        matches!(host, AskedHost::Name(name) if self.holds_placeholder(name.as_bytes()))
    }

    /// Whether a path and query hold one, be it escaped.
    pub fn is_in_target(&self, target: &str) -> bool {
        let decoded: Vec<u8> = percent_decode_str(target).collect();
        self.holds_placeholder(target.as_bytes()) || self.holds_placeholder(&decoded)
    }

    /// Returns `text` with what `value_of` returns in place of each placeholder, if it holds one.
    pub fn substitute<'a, E>(
        &'a self,
        text: &[u8],
        value_of: impl Fn(&'a NetworkSecret) -> Result<&'a str, E>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, E> {
        let mut values = Vec::new();
        for (at, candidate) in candidates(text) {
            if let Some(secret) = self.behind(candidate) {
                values.push((at, value_of(secret)?));
            }
        }
        if values.is_empty() {
            return Ok(None);
        }
        // Of the final size at once: a buffer that grows leaves copies.
        let added: usize = values.iter().map(|(_, value)| value.len()).sum();
        let mut written = Zeroizing::new(Vec::with_capacity(text.len() + added));
        let mut from = 0;
        for (at, value) in values {
            written.extend_from_slice(text.get(from..at).unwrap_or_default());
            written.extend_from_slice(value.as_bytes());
            from = at + PREFIX.len() + DIGITS;
        }
        written.extend_from_slice(text.get(from..).unwrap_or_default());
        Ok(Some(written))
    }
}
