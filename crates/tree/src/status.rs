//! What a file's status says: its type, and the permissions it has in a workspace.

use nix::sys::stat::{FileStat, Mode, SFlag};

const PERMISSIONS: Mode = Mode::S_IRWXU.union(Mode::S_IRWXG).union(Mode::S_IRWXO);

/// The type: `S_IFREG`, `S_IFDIR`, …
pub(super) fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// A file's own permissions, without setuid, setgid and sticky: they would be those of another
/// owner.
pub(super) fn file_mode(stat: &FileStat) -> Mode {
    Mode::from_bits_truncate(stat.st_mode) & PERMISSIONS
}

/// A directory's own permissions, and all for its owner: the tenant must be able to work in it.
pub(super) fn directory_mode(stat: &FileStat) -> Mode {
    file_mode(stat) | Mode::S_IRWXU
}
