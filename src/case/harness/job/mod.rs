//! The harness of kind `job`: a request of agent jobs over the tree of the Cell.

mod ended;
mod harness;
mod over_cell;
mod request;

pub use self::harness::{InlineJobs, JobHarness};
pub use self::over_cell::CellJobs;
pub use self::request::InlineJob;
