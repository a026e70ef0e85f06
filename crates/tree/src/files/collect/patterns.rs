//! The patterns of a collection.

use std::path::{Path, PathBuf};

use crate::files::error::FilesError;
use crate::files::location::{FileArea, FileLocation};
use crate::walk::prefix_filter::PrefixFilter;
use cofferdam_core::values::glob::Globs;

/// Characters that make a part of a pattern more than a name.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// A pattern: names that are looked up, links included, and a glob for what is below.
#[derive(Debug)]
pub(super) struct CollectPattern {
    /// The directory of the names before the first special part, or before the last.
    pub(super) base: FileLocation,
    pub(super) glob: Globs,
    pub(super) prefixes: PrefixFilter,
    /// The name in the directory, if the pattern has no special part.
    pub(super) only: Option<String>,
}

/// Parses `patterns`, relative to the workspace. Those for the workspace itself match no file and are left out as
/// `None`, so that the others keep their places.
pub(super) fn parse(patterns: &[String]) -> Result<Vec<Option<CollectPattern>>, FilesError> {
    // The number of patterns and their lengths, too.
    Globs::parse(patterns)
        .map_err(|bad| FilesError::BadPattern { index: bad.index, reason: bad.reason })?;
    patterns.iter().enumerate().map(|(index, pattern)| parse_one(index, pattern)).collect()
}

fn parse_one(index: usize, pattern: &str) -> Result<Option<CollectPattern>, FilesError> {
    let escapes = || FilesError::PathEscape { path: PathBuf::from(pattern) };
    if pattern.starts_with('/') {
        return Err(escapes());
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            // Where `..` of a glob leads depends on what it matches.
            parts.pop_if(|above| !above.contains(SPECIAL)).ok_or_else(escapes)?;
        } else {
            parts.push(part);
        }
    }
    let Some((last, above)) = parts.split_last() else { return Ok(None) };
    let names = above.iter().take_while(|part| !part.contains(SPECIAL)).count();
    let (base, rest) = parts.split_at(names);
    let text = rest.join("/");
    let glob = Globs::parse(&[&text])
        .map_err(|bad| FilesError::BadPattern { index, reason: bad.reason })?;
    let is_name = rest.len() == 1 && !last.contains(SPECIAL);
    Ok(Some(CollectPattern {
        base: FileLocation::top(FileArea::Workspace).join(Path::new(&base.join("/"))),
        glob,
        prefixes: PrefixFilter::of(std::slice::from_ref(&text)),
        only: is_name.then(|| text.clone()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_split_where_its_glob_begins() {
        for (pattern, base, only) in [
            ("out/a.txt", "out", Some("a.txt")),
            ("./out//a/../b/*.txt", "out/b", None),
            ("*", ".", None),
            ("a", ".", Some("a")),
            ("a/{b/c,d}/e", "a", None),
            ("**/x", ".", None),
            ("a/b\\*", "a", None),
        ] {
            let parsed = parse_one(0, pattern).unwrap().unwrap();
            assert_eq!(parsed.base.shown(), Path::new(base), "{pattern}");
            assert_eq!(parsed.only.as_deref(), only, "{pattern}");
        }
        for pattern in [".", "./", "a/.."] {
            assert!(parse_one(0, pattern).unwrap().is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_leaves_or_is_malformed_is_refused() {
        for pattern in ["..", "../x", "a/../../x", "/etc/*", "*/../x", "a/**/../../../x"] {
            let refused = parse(&[pattern.to_owned()]);
            assert!(
                matches!(refused, Err(FilesError::PathEscape { .. })),
                "{pattern}: {refused:?}"
            );
        }
        for pattern in ["[", "", "a\0"] {
            let refused = parse(&["*".to_owned(), pattern.to_owned()]);
            assert!(matches!(refused, Err(FilesError::BadPattern { index: 1, .. })), "{refused:?}");
        }
    }
}
