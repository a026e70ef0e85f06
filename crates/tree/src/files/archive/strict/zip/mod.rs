//! Zip archives, read by their central directory one record at a time: a list of all entries would take
//! more memory than an archive may cost.

mod directory;
pub(super) mod entries;
mod record;
