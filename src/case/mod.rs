//! Cases: a task, how its environment is made, which harnesses try it, and how they are graded.

pub mod cell;
pub mod file;
pub mod grade;
pub mod harness;
mod known_agents;
pub mod provision;
pub mod run;
pub mod service;
pub mod source;
pub mod trial;
