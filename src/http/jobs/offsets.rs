//! Event ids: offsets in a job's output, where a client resumes.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};

/// The id of the last event that a reconnecting client received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How much of each stream was sent: the id of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Bytes of stdout.
    pub stdout: u64,
    /// Bytes of stderr.
    pub stderr: u64,
}

impl Offsets {
    /// Returns the offsets in `Last-Event-ID`, or zero if it is absent or not one of our ids.
    pub fn left_off(headers: &HeaderMap) -> Self {
        let mut ids = headers.get_all(LAST_EVENT_ID).iter();
        let id = ids.next().filter(|_| ids.next().is_none()).and_then(|id| id.to_str().ok());
        id.and_then(Self::parse).unwrap_or_default()
    }

    fn parse(id: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().unwrap_or(u64::MAX))
        };
        let (stdout, stderr) = id.strip_prefix('o')?.split_once(".e")?;
        Some(Self { stdout: number(stdout)?, stderr: number(stderr)? })
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "o{}.e{}", self.stdout, self.stderr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_event_id_means_the_beginning() {
        for (id, offsets) in [
            ("o0.e0", Some((0, 0))),
            ("o7.e12", Some((7, 12))),
            ("o99999999999999999999999.e1", Some((u64::MAX, 1))),
            ("", None),
            ("7", None),
            ("o7", None),
            ("o7.e", None),
            ("o.e7", None),
            ("o-1.e2", None),
            ("o+1.e2", None),
            ("o1.e2 ", None),
            ("e1.o2", None),
            ("o1.e2.e3", None),
        ] {
            let expected = offsets.map(|(stdout, stderr)| Offsets { stdout, stderr });
            assert_eq!(Offsets::parse(id), expected, "{id:?}");
        }
        let offsets = Offsets { stdout: 7, stderr: 12 };
        assert_eq!(Offsets::parse(&offsets.to_string()), Some(offsets));
    }
}
