//! Clients that are many, slow or large.

mod deadlines;
mod exhaustion;
mod flood;
mod footprint;
mod limits;
mod process;
