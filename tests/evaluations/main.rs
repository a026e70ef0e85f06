//! Evaluations and their tasks by public doors: the built binary, real git, and servers of this test on the
//! loopback.

// Tells clippy that the whole crate is a test.
#![cfg(test)]

mod cheats;
mod download;
mod evaluate;
mod killed;
mod predictions;
mod reports;
mod repository;
mod scene;
mod served;
mod steps;
mod task;
mod tasks;
