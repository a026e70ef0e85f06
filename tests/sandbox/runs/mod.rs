//! Runs from start to end: limits, output, results.

mod endings;
mod limits;
mod output;
mod tasks;
mod wall;
