//! The files of a store: its directories, its locks, and the record of one job.

pub(super) mod directory;
pub(super) mod inspect;
pub(super) mod owner;
pub(super) mod service_lock;
pub(super) mod status_file;
