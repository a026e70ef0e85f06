//! `cofferdam exec --overlay`: a command on a view of directories.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod commits;
mod hostile;
mod killed;
mod protection;
mod random;
mod support;
mod view;
