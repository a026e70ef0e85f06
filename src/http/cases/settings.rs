//! What HTTP accepts of Cases.

use crate::config::CaseServiceConfig;

/// What HTTP accepts of Cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaseHttpSettings {
    /// The longest request, bytes: JSON or an archive, and the files in it.
    pub input_bytes_max: u64,
}

impl From<&CaseServiceConfig> for CaseHttpSettings {
    fn from(config: &CaseServiceConfig) -> Self {
        Self { input_bytes_max: config.input_bytes_max }
    }
}
