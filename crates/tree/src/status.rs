//! A file's type, and the permissions that its copy gets in a workspace.

use nix::sys::stat::{FileStat, Mode, SFlag};

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
