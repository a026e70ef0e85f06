//! The standby pool of prepared sandboxes: what it must not change and what it may cost. The tests
//! use the real binary and real sandboxes, and look at the prepared ones from the host.
//!
//! `COFFERDAM_BIN` names another binary to test.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

mod bounds;
mod drain;
mod freshness;
mod indistinguishable;
mod prestart;
mod ready;
mod single_use;
mod soak;
mod times;
mod warm_soak;
mod workspaces;
mod yielding;
