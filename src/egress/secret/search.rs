//! Finds secrets in answers, however they are written.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use cofferdam_core::SecretValue;

use super::encodings::spellings;
use super::needle::Needle;

/// How much of a needle the fast search looks for. It is not overwritten afterwards, so it is short.
pub const START_BYTES: usize = 4;

/// Finds the secrets of one network in answers.
pub struct SecretSearch {
    pub(super) needles: Vec<Needle>,
    /// Finds the first bytes of needles; none if it could not be made.
    starts: Option<AhoCorasick>,
}

impl fmt::Debug for SecretSearch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("SecretSearch").field(&self.needles.len()).finish()
    }
}

impl SecretSearch {
    /// Searches for `secrets`.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a SecretValue>) -> Self {
        let spelled = secrets.into_iter().flat_map(|secret| spellings(secret.expose()));
        let needles: Vec<Needle> = spelled.map(Needle::new).collect();
        let mut starts: Vec<&[u8]> =
            needles.iter().filter_map(|needle| needle.bytes().get(..START_BYTES)).collect();
        starts.sort_unstable();
        starts.dedup();
        let starts = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(starts).ok();
        Self { needles, starts }
    }

    /// The bytes of all needles.
    pub fn bytes(&self) -> usize {
        self.needles.iter().map(|needle| needle.bytes().len()).sum()
    }

    /// Where the first needle could begin in `bytes` of which it shows at least [`START_BYTES`].
    pub(super) fn candidate(&self, bytes: &[u8]) -> Option<usize> {
        match &self.starts {
            Some(starts) => starts.find(bytes).map(|found| found.start()),
            None => (!bytes.is_empty()).then_some(0),
        }
    }
}
