//! Cases: a task, how its environment is made, which harnesses try it, and how they are graded.

pub mod cell;
pub mod file;
mod known_agents;
pub mod source;
