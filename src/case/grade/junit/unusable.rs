//! Why a report does not count.

/// Why a report does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct UnusableReport {
    /// The reason, in words.
    pub reason: &'static str,
}

impl From<&'static str> for UnusableReport {
    fn from(reason: &'static str) -> Self {
        Self { reason }
    }
}
