//! The path of a walk's current entry.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of a path in an error or a report.
const SHOWN_BYTES_MAX: usize = 1024;

/// A path relative to the top of a tree, which grows and shrinks with a walk. The cost of each step
/// does not depend on the path's length.
#[derive(Debug, Default)]
pub(crate) struct PathStack {
    path: Vec<u8>,
    /// The start of each part.
    starts: Vec<usize>,
}

impl PathStack {
    /// Appends `name`.
    pub(crate) fn enter(&mut self, name: &CStr) {
        if !self.starts.is_empty() {
            self.path.push(b'/');
        }
        self.starts.push(self.path.len());
        self.path.extend_from_slice(name.to_bytes());
    }

    /// Removes the last part. At the top it does nothing.
    pub(crate) fn leave(&mut self) {
        if let Some(start) = self.starts.pop() {
            self.path.truncate(start.saturating_sub(1));
        }
    }

    /// The path, parts separated by `/`; empty at the top.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.path
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// The number of parts.
    pub(crate) fn depth(&self) -> usize {
        self.starts.len()
    }

    /// The part at `index`, counted from 0; empty if absent.
    pub(crate) fn part(&self, index: usize) -> &[u8] {
        let Some(start) = self.starts.get(index) else { return b"" };
        let end = self.starts.get(index + 1).map_or(self.path.len(), |next| next - 1);
        self.path.get(*start..end).unwrap_or_default()
    }

    /// The last part; empty at the top.
    pub(crate) fn name(&self) -> &[u8] {
        self.starts.last().and_then(|start| self.path.get(*start..)).unwrap_or_default()
    }

    /// The part before the last; empty if absent.
    pub(crate) fn parent_name(&self) -> &[u8] {
        self.depth().checked_sub(2).map_or(b"", |index| self.part(index))
    }

    /// The path for an error: `.` at the top, and cut to 1 KiB.
    pub(crate) fn shown(&self) -> PathBuf {
        if self.path.is_empty() {
            return ".".into();
        }
        match self.path.get(..SHOWN_BYTES_MAX) {
            Some(beginning) if self.path.len() > SHOWN_BYTES_MAX => {
                Path::new(OsStr::from_bytes(beginning)).join("…")
            }
            _ => self.path().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_the_path_of_the_entered_names() {
        let mut path = PathStack::default();
        assert_eq!((path.bytes(), path.name(), path.parent_name()), (&b""[..], &b""[..], &b""[..]));
        assert_eq!(path.shown(), Path::new("."));
        for name in [c"a", c"bc", c"\xff"] {
            path.enter(name);
        }
        assert_eq!((path.bytes(), path.depth()), (&b"a/bc/\xff"[..], 3));
        assert_eq!((path.name(), path.parent_name()), (&b"\xff"[..], &b"bc"[..]));
        assert_eq!([0, 1, 2, 3].map(|at| path.part(at)), [&b"a"[..], b"bc", b"\xff", b""]);
        path.leave();
        path.leave();
        assert_eq!(
            (path.bytes(), path.name(), path.parent_name()),
            (&b"a"[..], &b"a"[..], &b""[..])
        );
        path.leave();
        path.leave();
        assert_eq!((path.bytes(), path.depth()), (&b""[..], 0));
    }

    #[test]
    fn a_very_long_path_is_shown_cut() {
        let mut path = PathStack::default();
        for _ in 0..1_000 {
            path.enter(c"long");
        }
        let shown = path.shown();
        assert!(shown.starts_with("long/long") && shown.ends_with("…"));
        assert!(shown.as_os_str().len() < SHOWN_BYTES_MAX + 8);
    }
}
