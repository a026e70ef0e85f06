//! Limits of a tree, checked while it is walked.

/// A limit that a tree exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeLimit {
    /// Files, directories, links and specials together.
    #[error("more than {max} entries")]
    Entries {
        /// The limit.
        max: u64,
    },
    /// Regular files and links alone.
    #[error("more than {max} files")]
    Files {
        /// The limit.
        max: u64,
    },
    /// Directories alone.
    #[error("more than {max} directories")]
    Directories {
        /// The limit.
        max: u64,
    },
    /// The length of one path.
    #[error("a path of more than {max} bytes")]
    PathBytes {
        /// The limit.
        max: u64,
    },
    /// The lengths of all paths together.
    #[error("paths of more than {max} bytes together")]
    PathsBytes {
        /// The limit.
        max: u64,
    },
    /// The contents of regular files together.
    #[error("more than {max} bytes")]
    Bytes {
        /// The limit.
        max: u64,
    },
    /// Nested directories.
    #[error("more than {max} levels deep")]
    Depth {
        /// The limit.
        max: u64,
    },
}

/// The limits of a tree that is scanned or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Files, directories, links and specials together.
    pub entries_max: u64,
    /// Size of the regular files together, bytes. A copy does not count holes.
    pub bytes_max: u64,
    /// Nested directories.
    pub depth_max: u64,
}

impl Default for TreeLimits {
    /// The limits of a template: a large `node_modules` fits, a whole file system by mistake does
    /// not.
    fn default() -> Self {
        Self { entries_max: 1_000_000, bytes_max: 8 << 30, depth_max: 65_536 }
    }
}

/// The used part of [`TreeLimits`].
#[derive(Debug)]
pub(crate) struct TreeBudget {
    limits: TreeLimits,
    entries: u64,
    bytes: u64,
}

impl TreeBudget {
    pub(crate) fn new(limits: TreeLimits) -> Self {
        Self { limits, entries: 0, bytes: 0 }
    }

    /// Counts an entry, `depth` directories below the root.
    pub(crate) fn take_entry(&mut self, depth: usize) -> Result<(), TreeLimit> {
        let TreeLimits { entries_max, depth_max, .. } = self.limits;
        self.entries = self.entries.saturating_add(1);
        if self.entries > entries_max {
            return Err(TreeLimit::Entries { max: entries_max });
        }
        if u64::try_from(depth).unwrap_or(u64::MAX) > depth_max {
            return Err(TreeLimit::Depth { max: depth_max });
        }
        Ok(())
    }

    /// Counts `bytes` more of contents.
    pub(crate) fn take_bytes(&mut self, bytes: u64) -> Result<(), TreeLimit> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.check_bytes(0)
    }

    /// Fails if `bytes` more do not fit. Counts nothing.
    pub(crate) fn check_bytes(&self, bytes: u64) -> Result<(), TreeLimit> {
        let TreeLimits { bytes_max, .. } = self.limits;
        match self.bytes.saturating_add(bytes) > bytes_max {
            true => Err(TreeLimit::Bytes { max: bytes_max }),
            false => Ok(()),
        }
    }

    /// The bytes counted so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_taken_whole_and_refused_one_above() {
        let limits = TreeLimits { entries_max: 2, bytes_max: 10, depth_max: 1 };
        let mut budget = TreeBudget::new(limits);
        assert_eq!(budget.take_entry(1), Ok(()));
        assert_eq!(budget.take_entry(2), Err(TreeLimit::Depth { max: 1 }));
        assert_eq!(budget.take_entry(0), Err(TreeLimit::Entries { max: 2 }));
        assert_eq!(budget.take_bytes(10), Ok(()));
        assert_eq!(budget.check_bytes(0), Ok(()));
        assert_eq!(budget.check_bytes(1), Err(TreeLimit::Bytes { max: 10 }));
        assert_eq!(budget.take_bytes(1), Err(TreeLimit::Bytes { max: 10 }));
        assert_eq!(budget.take_bytes(u64::MAX), Err(TreeLimit::Bytes { max: 10 }));
    }
}
