//! Tar archives of trees: written in one stream, and judged whole before they are unpacked.

mod claims;
mod header;
mod judge;
mod pack;
mod reader;
mod spool;
mod strict;
#[cfg(test)]
mod tests;
mod unpack;

pub use self::judge::ArchiveContents;
pub use self::pack::pack;
pub use self::reader::ArchiveLimits;
pub use self::spool::Spool;
pub use self::strict::{
    StrictArchive, StrictContents, StrictError, StrictLimits, StrictRule, UnsafeReason,
    archive_property, unpack_strict,
};
pub use self::unpack::{judge_tree, unpack, unpack_tree};
