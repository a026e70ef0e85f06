//! Why an archive of a task is refused.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use crate::files::error::FilesError;
use crate::walk::budget::TreeLimit;

/// What makes an archive unsafe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeReason {
    /// A path contains `..`.
    Traversal,
    /// A path is absolute.
    Absolute,
    /// A link where none may be, or one that leads out of its directory, or an entry below a link.
    Link,
    /// A device or a fifo.
    Device,
    /// A name is empty, too long or too deep, contains NUL, or is not UTF-8.
    Name,
    /// A path is given twice.
    Duplicate,
    /// It unpacks to too many times its own size.
    Ratio,
    /// It unpacks to too many bytes.
    Size,
    /// It has too many entries.
    Entries,
    /// Its zstd window is too large.
    Window,
}

impl UnsafeReason {
    /// The word of the contract.
    pub fn word(self) -> &'static str {
        match self {
            Self::Traversal => "traversal",
            Self::Absolute => "absolute",
            Self::Link => "link",
            Self::Device => "device",
            Self::Name => "name",
            Self::Duplicate => "duplicate",
            Self::Ratio => "ratio",
            Self::Size => "size",
            Self::Entries => "entries",
            Self::Window => "window",
        }
    }
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum StrictError {
    /// It may not be unpacked. Nothing was written.
    #[error("the archive is not safe at {entry:?}: {}", reason.word())]
    Unsafe {
        /// The name of the entry, not UTF-8 replaced and cut; empty for the archive as a whole.
        entry: String,
        /// Why.
        reason: UnsafeReason,
    },
    /// It is damaged, or of a format that is not read.
    #[error("{reason}")]
    Malformed {
        /// The name of the entry, as above.
        entry: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The host could not read or write.
    #[error(transparent)]
    Host(FilesError),
}

/// What a reader refuses the archive for, beside its error.
pub(super) type Refused = Rc<Cell<Option<UnsafeReason>>>;

/// The most bytes of a name in an error.
const SHOWN_BYTES_MAX: usize = 1024;

impl StrictError {
    pub(super) fn refuse(reason: UnsafeReason, entry: &[u8]) -> Self {
        Self::Unsafe { entry: shown(entry), reason }
    }

    /// The error for one of a reader, at the entry `entry`.
    pub(super) fn of_reader(error: FilesError, entry: &[u8]) -> Self {
        match error {
            FilesError::TooLarge { source: TreeLimit::Entries { .. }, .. } => {
                Self::refuse(UnsafeReason::Entries, entry)
            }
            FilesError::TooLarge { .. } => Self::refuse(UnsafeReason::Size, entry),
            FilesError::ArchiveUnsafe { entry: named, reason } => {
                let is_named = named != Path::new("");
                let entry = if is_named { named.as_os_str().as_bytes() } else { entry };
                Self::Malformed { entry: shown(entry), reason }
            }
            error => Self::Host(error),
        }
    }
}

fn shown(entry: &[u8]) -> String {
    let cut = entry.get(..SHOWN_BYTES_MAX).unwrap_or(entry);
    OsStr::from_bytes(cut).to_string_lossy().into_owned()
}
