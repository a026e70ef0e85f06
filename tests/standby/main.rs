//! Boxes made ahead of the runs that will want them: what they must not change, and what they may
//! cost. The real binary, real boxes, and looks from the host at those that stand ready.
//!
//! `COFFERDAM_BIN` names another binary to hold to the same guarantees.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod bounds;
mod drain;
mod freshness;
mod indistinguishable;
mod ready;
mod single_use;
mod soak;
mod times;
mod yielding;
