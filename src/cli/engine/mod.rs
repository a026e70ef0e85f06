//! Commands of the code executor engine.

pub mod artifact;
pub mod execute;
mod failure;
pub mod helper;
mod output;
pub mod workspace;
