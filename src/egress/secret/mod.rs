//! Secrets: where requests may have them, what stands for them in a sandbox, and how answers are cleared of
//! them.

pub(crate) mod basic;
pub(crate) mod encodings;
pub(crate) mod needle;
pub(crate) mod place;
pub(crate) mod placeholder;
pub(crate) mod search;
pub(crate) mod service;
pub(crate) mod set;
pub(crate) mod stream;

pub use placeholder::Placeholders;
pub use search::SecretSearch;
pub use service::{ServiceSecret, ServiceSecrets};
pub use stream::RedactStream;
