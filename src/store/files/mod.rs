//! The files of a store: directories, locks, and the files of one record.

pub(super) mod directory;
pub(super) mod inspect;
pub(super) mod owner;
pub(super) mod service_lock;
pub(super) mod status_file;
