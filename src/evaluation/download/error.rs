//! Why there is no archive.

use cofferdam_core::egress::EgressReason;
use serde_json::{Map, Value, json};

/// Why the archive of a task was not downloaded. The agent has no part in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownloadError {
    /// The URL, or one that it redirects to, may not be reached.
    #[error("task_url: {host}:{port} may not be reached: {}", .reason.word())]
    UrlDenied {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        reason: EgressReason,
    },
    /// The server did not give it.
    #[error("the download failed: {message}")]
    Failed {
        /// Why.
        message: String,
    },
    /// It did not come in time.
    #[error("the download took longer than {seconds} s")]
    TimedOut {
        /// What it may take.
        seconds: u64,
    },
    /// It is larger than allowed.
    #[error("the archive has more than {bytes_max} bytes")]
    TooLarge {
        /// What is allowed.
        bytes_max: u64,
    },
    /// It is another one than the request names.
    #[error("task_sha256: the archive has the digest {found}")]
    DigestMismatch {
        /// The digest of what came.
        found: String,
    },
    /// The evaluation was cancelled meanwhile.
    #[error("cancelled")]
    Cancelled,
    /// The evaluation's time was over while another downloaded the same.
    #[error("the session's time is over")]
    Expired,
    /// The cache cannot be read or written.
    #[error("cache: {0}")]
    Cache(String),
}

impl DownloadError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UrlDenied { .. } => "task.url_denied",
            Self::Failed { .. } | Self::TimedOut { .. } => "task.download_failed",
            Self::TooLarge { .. } => "task.too_large",
            Self::DigestMismatch { .. } => "task.digest_mismatch",
            Self::Cancelled => "evaluation.cancelled",
            Self::Expired => "session.expired",
            Self::Cache(_) => "sandbox.failed",
        }
    }

    /// The limit that was hit, if one was.
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            Self::TimedOut { .. } => Some("wall_time"),
            Self::TooLarge { .. } => Some("archive"),
            Self::Expired => Some("session"),
            _ => None,
        }
    }

    /// Further fields of the failure.
    pub fn details(&self) -> Map<String, Value> {
        let details = match self {
            Self::UrlDenied { host, port, reason } => {
                json!({"host": host, "port": port, "reason": reason.word()})
            }
            Self::TooLarge { bytes_max } => json!({"bytes_max": bytes_max}),
            Self::DigestMismatch { found } => json!({"sha256": found}),
            _ => Value::Null,
        };
        match details {
            Value::Object(details) => details,
            _ => Map::new(),
        }
    }
}
