//! Use cases, one a file, without HTTP types.

pub mod check_request;
pub mod check_run;
pub mod figures;
pub mod jobs;
pub mod languages;
mod last_words;
pub mod status;
