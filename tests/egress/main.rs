//! What programs may reach: jobs and workspaces with a network, through public doors, with real programs
//! in sandboxes and servers of this test on the loopback.
//!
//! `COFFERDAM_BIN` names another binary to test.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod clients;
mod evaluations;
mod exec;
mod faults;
mod jobs;
mod live;
mod origin;
mod puts;
mod rules;
mod secrecy;
mod smuggling;
mod support;
mod workspaces;
