//! Code-battle runs: `POST /run` as a service, without HTTP types.

pub mod lang;
pub mod languages;
pub(crate) mod last_words;
pub mod metrics;
pub mod request;
#[cfg(any(test, fuzzing))]
pub mod request_property;
pub mod run;
pub mod status;
