//! Evaluations that are ended from outside, in any step.

mod deletes;
mod kills;
