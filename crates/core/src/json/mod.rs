//! Requests in JSON, read strictly.

mod document;
mod strict;

pub use document::JsonDocument;
pub use strict::{JsonFault, parse_object};
