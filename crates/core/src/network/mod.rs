//! What a request lets its programs reach, and the secrets that are added on the way out.

pub(crate) mod object;
pub(crate) mod rule;
pub(crate) mod secret;
