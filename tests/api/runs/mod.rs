//! Runs: what user code sees, and how its end is reported.

mod failures;
mod inside;
mod outcomes;
mod timeouts;
mod workspaces;
