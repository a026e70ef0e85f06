//! Options that several commands have, parsers of their values, and when they are defined.

pub mod deferred;
pub mod file_secrets;
pub mod sandbox_options;
pub mod value_parsers;
