//! A file's type, and its permissions in a workspace.

use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::unistd::Uid;

use cofferdam_core::values::owner::Owner;
use cofferdam_core::weakened::{self, Wall};

const PERMISSIONS: Mode = Mode::S_IRWXU.union(Mode::S_IRWXG).union(Mode::S_IRWXO);

/// The file type: `S_IFREG`, `S_IFDIR`, …
pub(super) fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// A file's permission bits without setuid, setgid and sticky, which would act for another owner.
pub(super) fn file_mode(stat: &FileStat) -> Mode {
    Mode::from_bits_truncate(stat.st_mode) & PERMISSIONS
}

/// A directory's permission bits, with all of its owner's: the tenant must be able to work in it.
pub(super) fn directory_mode(stat: &FileStat) -> Mode {
    file_mode(stat) | Mode::S_IRWXU
}

/// The permissions that a file or directory of a read-only tree has in place of `mode`.
pub(super) fn read_only_mode(mode: Mode) -> Mode {
    if weakened::lacks(Wall::ReadOnly) { mode | WRITE } else { mode - WRITE }
}

/// The write permissions.
const WRITE: Mode = Mode::S_IWUSR.union(Mode::S_IWGRP).union(Mode::S_IWOTH);

/// Whether a directory belongs to a read-only tree of a workspace of `owner`: the service owns it, and it has no
/// write permission. A program can neither make such a directory nor change one. Where the service runs as the
/// owner, there is no read-only tree.
pub(super) fn is_read_only(stat: &FileStat, owner: Owner) -> bool {
    let service = Uid::effective().as_raw();
    stat.st_uid == service && service != owner.uid && !file_mode(stat).intersects(WRITE)
}
