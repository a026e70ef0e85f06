//! What programs with a network make of it.

pub mod connections;
pub mod hosts;
pub mod other_ways;
pub mod requests;
pub mod rules;
mod scene;
