//! `cofferdam exec`.

mod outcome;
mod rootfs;
mod sandbox;
