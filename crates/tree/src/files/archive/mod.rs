//! Tar archives of trees: written in one stream, and judged whole before they are unpacked.

mod header;
mod judge;
mod pack;
mod reader;
mod spool;
#[cfg(test)]
mod tests;
mod unpack;

pub use self::judge::ArchiveContents;
pub use self::pack::pack;
pub use self::reader::ArchiveLimits;
pub use self::spool::Spool;
pub use self::unpack::{judge_tree, unpack, unpack_tree};
