//! Job ids.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest id, bytes.
const BYTES_MAX: usize = 128;

/// A job's id: 1 to 128 of `A-Z a-z 0-9 . _ -`, not starting with a dot. It is also the name of a
/// directory in the store.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String")]
#[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$"))]
pub struct JobId(String);

/// A text that is not a job id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("want 1 to 128 of A-Z a-z 0-9 . _ - and no dot first")]
pub struct BadJobId;

impl JobId {
    /// Parses `text`.
    ///
    /// # Errors
    /// Any other character, a leading dot, or a wrong length.
    pub fn parse(text: &str) -> Result<Self, BadJobId> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=BYTES_MAX).contains(&text.len())
            && !text.starts_with('.')
            && text.bytes().all(is_plain);
        if is_name { Ok(Self(text.to_owned())) } else { Err(BadJobId) }
    }

    /// Makes a unique id: `job_` and a random UUID.
    pub fn random() -> Self {
        Self(format!("job_{}", uuid::Uuid::new_v4()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobId {
    type Error = BadJobId;

    fn try_from(text: String) -> Result<Self, BadJobId> {
        Self::parse(&text)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_directory_name() {
        let long = "x".repeat(BYTES_MAX);
        for good in ["job_1", "a", "A.b-C_9", "-x", &long, JobId::random().as_str()] {
            assert_eq!(JobId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        let longer = "x".repeat(BYTES_MAX + 1);
        for bad in ["", ".", "..", ".a", "a/b", "a\0", "é", "a b", "a\n", &longer] {
            assert_eq!(JobId::parse(bad), Err(BadJobId), "{bad:?}");
        }
    }
}
