//! The host: its kind, what it can enforce, and how to mend what it cannot.

pub(crate) mod abandoned;
pub(crate) mod hard_limits;
pub(crate) mod heap;
pub mod host_kind;
pub mod probe;
pub mod remedy;
pub(crate) mod root_source;
pub(crate) mod state;
mod trials;
pub(crate) mod weakened;
