//! The box a run lives in.

pub mod cgroup;
