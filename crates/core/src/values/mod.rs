//! Plain data: sizes, durations, paths, names, patterns, digests.

pub mod bytes;
pub mod cpus;
pub mod deadline;
pub mod digest;
pub mod duration;
pub mod glob;
pub mod host_name;
pub mod names;
pub mod origin;
pub mod owner;
pub mod rel_path;
#[cfg(any(test, fuzzing))]
pub mod timeout_property;
pub mod utc;
