//! The files of a workspace, which its programs change at the same time.
//!
//! A [`WorkspaceRoot`] is the descriptor of the root of the workspace's file system, and everything is resolved
//! beneath it. A [`PathRule`] turns a client's path into a [`FileLocation`]. Nothing that is judged by
//! name is used by name afterwards unless that is harmless: a program can exchange it in between.

mod archive;
mod change;
mod collect;
mod digest;
mod error;
mod layout;
mod list;
mod location;
mod read;
mod resolve;
mod stage;
#[cfg(test)]
mod tests;
mod write;

pub use self::archive::{
    ArchiveContents, ArchiveLimits, Spool, StrictArchive, StrictContents, StrictError,
    StrictLimits, StrictRule, UnsafeReason, archive_property, judge_tree, pack, unpack,
    unpack_strict, unpack_tree,
};
pub use self::change::{delete, make_directory, move_entry};
pub use self::collect::{
    CollectLimits, CollectOmission, CollectedFile, CollectedFiles, check_patterns, collect,
};
pub use self::digest::{DirectoryDigest, digest, digest_directory};
pub use self::error::FilesError;
pub use self::layout::{
    METADATA_BYTES_MAX, METADATA_NAME, ensure_layout, load_metadata, save_metadata,
};
pub use self::list::{DirectoryPage, ListRange, list};
pub use self::location::{FileArea, FileLocation, PathRule};
pub use self::read::{EntryType, FileInfo, OpenedFile, get, stat};
pub use self::resolve::WorkspaceRoot;
pub use self::stage::{
    DirectorySource, HostEntry, HostRoots, StageBatch, StagedAccess, fill_read_only, open_read_only,
};
pub use self::write::{NewFile, put_file, put_files};
