//! The shipped languages, through the real binary and their real toolchains.
//!
//! `SANDBOX_ROOTFS` is the root file system with the toolchains (`make test-langs` uses that of
//! `make toolchains`); by default the host's toolchains are used. `LANGUAGES` lists the slugs that
//! must be available; the others run if available, and are reported if not.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod at_once;
mod documented;
mod images;
mod overlaid;
mod prestarted;
mod queue;
mod stand_in;
mod unaltered;
mod uncached;
mod vectors;
