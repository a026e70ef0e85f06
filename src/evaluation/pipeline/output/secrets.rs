//! Secret values in a stream of bytes (pure).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What stands in place of a value.
const REDACTED: &[u8] = b"[redacted]";
/// A shorter value could not be replaced without harm to the rest.
const VALUE_BYTES_MIN: usize = 8;

/// Values that no output shows. Clones are the same ones.
#[derive(Clone, Default)]
pub struct SecretValues(Arc<Vec<RedactedValue>>);

/// A value, and how much of it still fits where it does not go on.
struct RedactedValue {
    bytes: Vec<u8>,
    /// For each length that fits, the next shorter one that fits too.
    shorter: Vec<usize>,
}

impl RedactedValue {
    fn new(bytes: Vec<u8>) -> Self {
        let mut value = Self { shorter: vec![0], bytes };
        for end in 1..value.bytes.len() {
            let byte = value.bytes.get(end).copied().unwrap_or_default();
            let fits = value.shorter.last().copied().unwrap_or_default();
            let fits = value.longest(fits, byte);
            value.shorter.push(fits);
        }
        value
    }

    /// How much fits after `byte`, if `fits` did before.
    fn longest(&self, mut fits: usize, byte: u8) -> usize {
        loop {
            if self.bytes.get(fits) == Some(&byte) {
                return fits + 1;
            }
            match fits.checked_sub(1).and_then(|last| self.shorter.get(last)) {
                Some(shorter) => fits = *shorter,
                None => return 0,
            }
        }
    }
}

impl SecretValues {
    /// Those of `values` that are long enough.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a String>) -> Self {
        let long = values.into_iter().filter(|value| value.len() >= VALUE_BYTES_MIN);
        Self(Arc::new(long.map(|value| RedactedValue::new(value.clone().into_bytes())).collect()))
    }

    /// `text` without them.
    pub fn redact(&self, text: String) -> String {
        if self.0.is_empty() {
            return text;
        }
        let mut filter = SecretFilter::new(self.clone());
        let mut left = filter.pass(text.as_bytes()).into_owned();
        left.extend(filter.rest());
        String::from_utf8_lossy(&left).into_owned()
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretValues({})", self.0.len())
    }
}

/// Replaces values in a stream, wherever it is cut. What may be the beginning of one is held back.
#[derive(Debug)]
pub struct SecretFilter {
    secrets: SecretValues,
    /// How much of each value the end of the stream is.
    fits: Vec<usize>,
    held: VecDeque<u8>,
    /// Bytes of the stream before those that are held.
    passed: u64,
    /// Where values are in what is held, in order, apart from each other.
    found: VecDeque<FoundValue>,
}

#[derive(Debug)]
struct FoundValue {
    from: u64,
    to: u64,
    is_told: bool,
}

impl SecretFilter {
    /// A filter for one stream.
    pub fn new(secrets: SecretValues) -> Self {
        let fits = vec![0; secrets.0.len()];
        Self { secrets, fits, held: VecDeque::new(), passed: 0, found: VecDeque::new() }
    }

    /// What can be passed on after `bytes` have come.
    pub fn pass<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.fits.is_empty() {
            return Cow::Borrowed(bytes);
        }
        for byte in bytes {
            self.held.push_back(*byte);
            self.advance(*byte);
        }
        let open = self.fits.iter().max().copied().unwrap_or_default();
        Cow::Owned(self.take(self.held.len().saturating_sub(open)))
    }

    /// What is held back, when the stream has ended.
    pub fn rest(&mut self) -> Vec<u8> {
        self.fits.fill(0);
        self.take(self.held.len())
    }

    fn advance(&mut self, byte: u8) {
        let end = self.passed.saturating_add(self.held.len() as u64);
        let mut longest = 0;
        for (value, fits) in self.secrets.0.iter().zip(&mut self.fits) {
            *fits = value.longest(*fits, byte);
            if *fits == value.bytes.len() {
                longest = longest.max(*fits);
                *fits = value.shorter.last().copied().unwrap_or_default();
            }
        }
        if longest == 0 {
            return;
        }
        let mut found =
            FoundValue { from: end.saturating_sub(longest as u64), to: end, is_told: false };
        while let Some(before) = self.found.pop_back_if(|before| before.to >= found.from) {
            found.from = found.from.min(before.from);
            found.is_told |= before.is_told;
        }
        self.found.push_back(found);
    }

    /// Takes the first `count` bytes that are held, without values.
    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(count);
        for byte in self.held.drain(..count) {
            while self.found.pop_front_if(|found| found.to <= self.passed).is_some() {}
            match self.found.front_mut() {
                Some(found) if found.from <= self.passed => {
                    if !std::mem::replace(&mut found.is_told, true) {
                        taken.extend_from_slice(REDACTED);
                    }
                }
                _ => taken.push(byte),
            }
            self.passed = self.passed.saturating_add(1);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(secrets: &[&str], text: &str, piece: usize) -> String {
        let secrets: Vec<String> = secrets.iter().map(ToString::to_string).collect();
        let mut filter = SecretFilter::new(SecretValues::new(&secrets));
        let mut out = Vec::new();
        for bytes in text.as_bytes().chunks(piece) {
            out.extend_from_slice(&filter.pass(bytes));
        }
        out.extend(filter.rest());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_is_replaced_wherever_the_stream_is_cut() {
        for (secrets, text, expected) in [
            (&["hunter2hunter2"][..], "a hunter2hunter2 b", "a [redacted] b"),
            (&["hunter2hunter2"], "hunter2hunter", "hunter2hunter"),
            (&["hunter2hunter2"], "hunter2hunter2hunter2", "[redacted]"),
            (&["12345678", "1234567890"], "x1234567890x123456789x", "x[redacted]x[redacted]9x"),
            (&["aaaaaaaa"], "aaaaaaaaaaaab", "[redacted]b"),
            (&["aaaaaaab"], "aaaaaaaaaaaab", "aaaaa[redacted]"),
            (&["abcdefgh", "efghijkl"], "_abcdefghijkl_", "_[redacted]_"),
            (&["abcdefgh"], "abcdefgh_abcdefgh", "[redacted]_[redacted]"),
            (&["seven77"], "seven77", "seven77"),
            (&[], "text", "text"),
        ] {
            for piece in [1, 2, 3, 5, 100] {
                assert_eq!(filtered(secrets, text, piece), expected, "{text} by {piece}");
            }
        }
    }

    #[test]
    fn only_a_possible_beginning_is_held_back() {
        let mut filter = SecretFilter::new(SecretValues::new(&["password1".to_owned()]));
        assert_eq!(*filter.pass(b"my pass"), *b"my ");
        assert_eq!(*filter.pass(b"port\n"), *b"passport\n");
        assert!(filter.rest().is_empty());
    }

    #[test]
    fn values_are_in_no_debug_output() {
        let secrets = SecretValues::new(&["password1".to_owned()]);
        assert_eq!(format!("{secrets:?}"), "SecretValues(1)");
        assert_eq!(secrets.redact("a password1".to_owned()), "a [redacted]");
    }
}
