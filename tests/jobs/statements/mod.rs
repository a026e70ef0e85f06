//! The acceptance statements of agents' jobs. The name of a test starts with the number of its
//! statement.

mod artifacts;
mod http;
mod policy;
mod results;
mod runs;
mod snapshots;
mod validation;
