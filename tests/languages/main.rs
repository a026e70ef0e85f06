//! The languages that are shipped, through the real binary and their real toolchains.
//!
//! `SANDBOX_ROOTFS` is the root file system with the toolchains (`make test-langs` names that of
//! `make toolchains`); without it they are the host's own. `LANGUAGES` lists the slugs that have
//! to be there; the others are run where they are, and named where they are not.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod at_once;
mod documented;
mod images;
mod overlaid;
mod queue;
mod stand_in;
mod unaltered;
mod uncached;
mod vectors;
