//! Grading: what a Cell is worth once its agent is dead.

pub mod pytest;
