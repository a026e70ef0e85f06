//! The acceptance statements of agents' jobs. A test's name begins with the number of its
//! statement.

mod artifacts;
mod http;
mod policy;
mod results;
mod runs;
mod snapshots;
mod validation;
