//! An answer that is cleared of secrets while it passes.
//!
//! Every needle is followed byte by byte, so that what is found does not depend on how the answer is cut
//! into chunks. Where none has begun, a fast search skips to the next byte where one may. Found needles
//! that overlap are replaced as one. Only what may be the beginning of a needle is held back.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use cofferdam_core::REDACTED;
use hyper::body::Bytes;
use zeroize::Zeroizing;

use super::search::{START_BYTES, SecretSearch};

/// One answer that passes. Positions count from its first byte.
#[derive(Debug)]
pub struct RedactStream {
    search: Arc<SecretSearch>,
    /// How much of each needle the answer ends with so far.
    matched: Vec<u32>,
    is_idle: bool,
    /// What has not been passed on.
    held: Zeroizing<Vec<u8>>,
    /// The position of the first byte of `held`.
    first: u64,
    /// The end of what was replaced last.
    replaced_until: u64,
    /// Needles that were found and not yet replaced, each with its first position and its end.
    pending: VecDeque<(u64, u64)>,
    found: u64,
}

impl RedactStream {
    /// An answer in which `search` finds secrets.
    pub fn new(search: Arc<SecretSearch>) -> Self {
        let matched = vec![0; search.needles.len()];
        Self {
            search,
            matched,
            is_idle: true,
            held: Zeroizing::default(),
            first: 0,
            replaced_until: 0,
            pending: VecDeque::new(),
            found: 0,
        }
    }

    /// How many secrets were found so far.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// How many bytes are held back.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Takes the next chunk and returns what may pass. A chunk without the beginning of a secret passes as
    /// it is, without a copy.
    pub fn push_bytes(&mut self, chunk: Bytes) -> Bytes {
        let is_untouched = self.is_idle && self.held.is_empty() && self.pending.is_empty();
        if is_untouched && self.search.candidate(&chunk).is_none() {
            let tail = chunk.len().saturating_sub(START_BYTES - 1);
            self.follow(tail, &chunk);
            if self.is_idle {
                self.first += chunk.len() as u64;
                return chunk;
            }
            self.held.extend_from_slice(&chunk);
            return self.pass().into();
        }
        self.push(&chunk).into()
    }

    /// Takes the next chunk and returns what may pass.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut at = 0;
        while at < chunk.len() {
            if self.is_idle {
                let rest = chunk.get(at..).unwrap_or_default();
                match self.search.candidate(rest) {
                    Some(start) => at += start,
                    None => {
                        // The last bytes may be less than the fast search looks for.
                        at = at.max(chunk.len().saturating_sub(START_BYTES - 1));
                        self.follow(at, chunk);
                        break;
                    }
                }
            }
            at = self.follow_until_idle(at, chunk);
        }
        self.held.extend_from_slice(chunk);
        self.pass()
    }

    /// Returns the bytes that are still held back, at the end of the answer.
    pub fn finish(&mut self) -> Vec<u8> {
        self.matched.fill(0);
        self.is_idle = true;
        self.pass()
    }

    /// Follows the needles over the bytes of `chunk` from `at`.
    fn follow(&mut self, at: usize, chunk: &[u8]) {
        for (index, byte) in chunk.iter().enumerate().skip(at) {
            self.step(*byte, index);
        }
    }

    /// The same until none has begun. Returns the index of the byte behind.
    fn follow_until_idle(&mut self, at: usize, chunk: &[u8]) -> usize {
        for (index, byte) in chunk.iter().enumerate().skip(at) {
            self.step(*byte, index);
            if self.is_idle {
                return index + 1;
            }
        }
        chunk.len()
    }

    /// Follows the needles over one byte, which stands at `index` of a chunk that is not yet in `held`.
    fn step(&mut self, byte: u8, index: usize) {
        let end = self.first + self.held.len() as u64 + index as u64 + 1;
        self.is_idle = true;
        for (needle, matched) in self.search.needles.iter().zip(&mut self.matched) {
            *matched = needle.advance(*matched, byte);
            if needle.is_whole(*matched) {
                self.pending.push_back((end - u64::from(*matched), end));
                self.found += 1;
                *matched = needle.border(*matched);
            }
            self.is_idle &= *matched == 0;
        }
    }

    /// Takes what may pass out of `held`.
    fn pass(&mut self) -> Vec<u8> {
        let end = self.first + self.held.len() as u64;
        let begun = self.matched.iter().max().copied().unwrap_or_default();
        // No needle that is found later begins before.
        let settled = end - u64::from(begun).min(end);
        self.pending.make_contiguous().sort_unstable();
        let mut out = Vec::with_capacity(self.held.len());
        while let Some((start, needle_end)) = self.pending.front().copied() {
            if start >= settled && start >= self.replaced_until {
                break;
            }
            self.pending.pop_front();
            if start >= self.replaced_until {
                self.take(start, Some(&mut out));
                out.extend_from_slice(REDACTED.as_bytes());
            }
            self.take(needle_end, None);
            self.replaced_until = self.replaced_until.max(needle_end);
        }
        let until = self.pending.front().map_or(settled, |(start, _)| settled.min(*start));
        self.take(until, Some(&mut out));
        out
    }

    /// Removes what is held before the position `until`, and appends it to `out` if there is one.
    fn take(&mut self, until: u64, out: Option<&mut Vec<u8>>) {
        let bytes = usize::try_from(until.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let bytes = bytes.min(self.held.len());
        if let Some(out) = out {
            out.extend_from_slice(self.held.get(..bytes).unwrap_or_default());
        }
        self.held.drain(..bytes);
        self.first += bytes as u64;
    }
}

impl SecretSearch {
    /// Returns `text` with `[redacted]` in place of secrets, if it holds any.
    pub fn redact(self: &Arc<Self>, text: &[u8]) -> Option<Vec<u8>> {
        self.candidate(text)?;
        let mut stream = RedactStream::new(Arc::clone(self));
        let mut out = stream.push(text);
        out.extend(stream.finish());
        (stream.found() > 0).then_some(out)
    }

    /// Redacts the values of `headers`, and removes those whose name holds a secret. Returns whether there
    /// was one.
    pub fn redact_headers(self: &Arc<Self>, headers: &mut HeaderMap) -> bool {
        let is_named = |name: &str| self.redact(name.as_bytes()).is_some();
        let named: Vec<_> =
            headers.keys().filter(|name| is_named(name.as_str())).cloned().collect();
        named.iter().for_each(|name| drop(headers.remove(name)));
        let mut found = !named.is_empty();
        for value in headers.values_mut() {
            if let Some(redacted) = self.redact(value.as_bytes()) {
                found = true;
                let whole = HeaderValue::from_static(REDACTED);
                *value = HeaderValue::from_bytes(&redacted).unwrap_or(whole);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
