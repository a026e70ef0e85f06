//! Options that several commands have, and parsers of their values.

pub mod sandbox_options;
pub mod value_parsers;
