//! Archives of tasks, which strangers made: tar, tar.gz, tar.zst and zip, judged by stricter rules than those
//! that a workspace's owner loads. A link or a path given twice refuses the archive by the entry's name, and
//! all of the archive is judged before anything is written.

pub mod archive_property;
mod error;
mod format;
mod judge;
mod limits;
mod stream;
#[cfg(test)]
mod tests;
mod unpack;
mod zip;
mod zstd;

pub use self::error::{StrictError, UnsafeReason};
pub use self::format::StrictArchive;
pub use self::judge::StrictContents;
pub use self::limits::{StrictLimits, StrictRule};
pub use self::unpack::unpack_strict;
