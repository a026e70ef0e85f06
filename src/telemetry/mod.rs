//! The format of the log, and its bounded queue.

pub(crate) mod log_format;
pub(crate) mod log_queue;
