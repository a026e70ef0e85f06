//! What the service does: admits, prepares, runs, ends, removes, recovers.

mod admission;
mod cells;
mod ending;
mod input;
mod live;
mod new_run;
mod prepare;
mod reading;
mod recovery;
mod retention;
mod shared;
mod state;
mod turns;

pub use shared::Shared;
