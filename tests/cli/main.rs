//! The built binary, from outside, with real boxes.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod doctor;
mod exec_box;
mod exec_end;
mod exec_root;
mod job_look;
mod job_run;
mod job_served;
mod job_server;
mod job_signals;
mod job_support;
mod job_unprivileged;
mod langs;
mod run;
mod schema;
mod serve;
mod signals;
mod support;
mod unprivileged;
mod usage;
