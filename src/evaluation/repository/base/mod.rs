//! Bases: a repository with what is installed for it, frozen and kept for later evaluations. What is
//! installed for an agent is kept in the same way.

mod contents;
mod keeper;
mod kept;
mod key;
mod saved;

pub use keeper::Bases;
pub use kept::{BASE_LIFETIME, Base};
pub use key::{AgentKey, BaseKey, ReachedNetwork};
