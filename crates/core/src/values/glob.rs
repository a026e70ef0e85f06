//! Glob patterns for relative paths.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The most patterns in a set.
pub const PATTERNS_MAX: usize = 1000;
/// The longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// A set of patterns, anchored at the top of the tree: `*` and `?` match within a path component,
/// `**` any number of components, `[ab]` one of several characters, `{a,b}` one of several texts.
#[derive(Debug, Clone, Default)]
pub struct Globs(GlobSet);

/// A malformed pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a pattern: {reason}")]
pub struct BadGlob {
    /// Its index in the list.
    pub index: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Globs {
    /// Parses all of `patterns`, at most 1000 of 1 to 1024 bytes each.
    ///
    /// # Errors
    /// The index of the first malformed pattern, and the reason.
    pub fn parse<P: AsRef<str>>(patterns: &[P]) -> Result<Self, BadGlob> {
        let bad = |index| move |reason: String| BadGlob { index, reason };
        if patterns.len() > PATTERNS_MAX {
            return Err(bad(PATTERNS_MAX)(format!("more than {PATTERNS_MAX} of them")));
        }
        let mut set = GlobSetBuilder::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let pattern = pattern.as_ref();
            if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX || pattern.contains('\0') {
                let reason = format!("want 1 to {PATTERN_BYTES_MAX} bytes without NUL");
                return Err(bad(index)(reason));
            }
            let mut glob = GlobBuilder::new(pattern);
            glob.literal_separator(true).backslash_escape(true);
            let glob = glob.build().map_err(|fault| bad(index)(fault.kind().to_string()))?;
            set.add(glob);
        }
        let set = set.build().map_err(|fault| bad(0)(fault.kind().to_string()))?;
        Ok(Self(set))
    }

    /// Whether a pattern matches the whole of `path`.
    pub fn matches(&self, path: &Path) -> bool {
        self.0.is_match(path)
    }

    /// Whether the set has no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_anchored_and_its_star_stays_within_a_part() {
        for (pattern, path, matches) in [
            ("**", "a", true),
            ("**", "a/b/c", true),
            ("*.log", "a.log", true),
            ("*.log", "b/a.log", false),
            ("**/*.log", "a.log", true),
            ("**/*.log", "b/c/a.log", true),
            ("out/**", "out/a/b", true),
            ("out/**", "out", false),
            ("out/*", "out/a/b", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("{a,b}/x", "b/x", true),
            ("[ab]", "b", true),
            ("*", ".hidden", true),
        ] {
            let globs = Globs::parse(&[pattern]).unwrap();
            assert_eq!(globs.matches(Path::new(path)), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn a_malformed_pattern_is_named() {
        for pattern in ["[", "a{", "", "a\0", &"x".repeat(PATTERN_BYTES_MAX + 1)] {
            assert_eq!(Globs::parse(&["**", pattern]).unwrap_err().index, 1, "{pattern:?}");
        }
        assert!(Globs::parse(&vec!["*"; PATTERNS_MAX + 1]).is_err());
    }
}
