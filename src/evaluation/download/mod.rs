//! The archives of tasks, by URL: fetched within bounds, from addresses that the rules of egress allow, and
//! kept in the cache.

mod archives;
mod client;
mod error;
mod resolver;

pub use archives::{ArchiveRequest, Archives, ArchivesSettings, FetchedArchive};
pub use client::system_tls;
pub use error::DownloadError;
pub use resolver::{DeniedAddress, JudgingResolver};
