//! Agents' jobs through every door: the library, the command line and HTTP, with real sandboxes.
//!
//! `statements` has the acceptance statements, each test with its number; `COFFERDAM_BIN` names
//! another binary to test.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod changing;
mod doors;
mod hostile;
mod killed;
mod limits;
mod many;
mod names;
mod shapes;
mod shared_store;
mod statements;
mod told;
mod unwritable;
mod workspace;
