//! The host: its kind, the controls it can enforce, and what to change for the others.

pub(crate) mod abandoned;
pub(crate) mod hard_limits;
pub(crate) mod heap;
pub mod host_kind;
pub(crate) mod open_hosts;
pub mod probe;
pub mod remedy;
pub(crate) mod root_source;
pub(crate) mod state;
mod trials;
mod workspaces;
