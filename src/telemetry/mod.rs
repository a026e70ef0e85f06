//! Logs: their format, and the bounded queue they wait in.

pub(crate) mod log_format;
pub(crate) mod log_queue;
