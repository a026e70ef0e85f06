//! Requests in JSON, read strictly.

mod document;
mod strict;

pub use document::JsonDocument;
pub(crate) use strict::shown_words;
pub use strict::{JsonFault, parse_object};
