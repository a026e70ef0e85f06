//! The body of `POST /run` as a checked value.

use std::time::Duration;

/// One code-battle run as asked for. The language is looked up later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRequest {
    /// The language's slug, as sent.
    pub lang_slug: String,
    /// The solution's text, written as it is.
    pub solution_text: String,
    /// The checker's text, if one was sent.
    pub checker_text: Option<String>,
    /// The text of `asserts.json`; the workspace's own stays where absent.
    pub asserts: Option<String>,
    /// The wall-clock limit.
    pub timeout: Duration,
}
