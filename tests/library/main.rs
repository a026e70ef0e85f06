//! The engine as a library: `cofferdam::engine` with real sandboxes of this process.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod bench;
mod code;
mod dropped;
mod injected;
mod programs;
mod sessions;
mod staging;
mod symbols;
mod workspaces;
