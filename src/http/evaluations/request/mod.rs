//! Reads requests for evaluations strictly (pure).

mod batch;
mod fields;
mod network;
mod single;

pub use batch::parse_batch;
pub use single::parse_evaluation;
