//! Solutions and their languages, as `POST /run` has them.

pub mod exec;
pub mod langs;
pub mod run;
