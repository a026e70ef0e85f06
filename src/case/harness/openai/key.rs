//! The key of a model, which no box, log or trace shows.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::egress::secret::SecretSearch;
use cofferdam_core::{REDACTED, SecretValue};

/// The longest key, bytes.
const KEY_BYTES_MAX: usize = 4096;

/// A key.
#[derive(Clone)]
pub struct ModelKey {
    text: Arc<Zeroizing<String>>,
    /// Finds it in answers; none for a key of less than eight bytes, which would be found everywhere.
    search: Option<Arc<SecretSearch>>,
}

impl ModelKey {
    /// Takes `text`.
    ///
    /// # Errors
    /// It cannot be sent in a header.
    pub fn new(text: Zeroizing<String>) -> Result<Self, &'static str> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > KEY_BYTES_MAX || !is_plain {
            return Err("a key has 1 to 4096 bytes of printable ASCII without spaces");
        }
        let secret = SecretValue::new(text.to_string()).ok();
        let search = secret.map(|secret| Arc::new(SecretSearch::new([&secret])));
        Ok(Self { text: Arc::new(text), search })
    }

    /// The value of the header `Authorization`.
    pub(super) fn header(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("Bearer {}", self.text.as_str()))
    }

    /// `bytes` without it.
    pub(super) fn redact(&self, bytes: Vec<u8>) -> Vec<u8> {
        let redacted = self.search.as_ref().and_then(|search| search.redact(&bytes));
        redacted.unwrap_or(bytes)
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<ModelKey, &'static str> {
        ModelKey::new(Zeroizing::new(text.to_owned()))
    }

    #[test]
    fn a_key_is_one_word_of_a_header() {
        for (text, is_key) in
            [("sk-123", true), ("", false), ("a b", false), ("a\n", false), ("é", false)]
        {
            assert_eq!(key(text).is_ok(), is_key, "{text:?}");
        }
    }

    #[test]
    fn a_key_is_shown_nowhere() {
        let key = key("sk-0123456789").unwrap();
        assert_eq!(format!("{key:?}"), "[redacted]");
        assert_eq!(key.header().as_str(), "Bearer sk-0123456789");
        let redacted = key.redact(b"no sk-0123456789 here".to_vec());
        assert_eq!(redacted, b"no [redacted] here");
        assert_eq!(key.redact(b"nothing".to_vec()), b"nothing");
    }
}
