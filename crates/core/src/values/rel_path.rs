//! `RelPath`: a path that cannot leave the directory it is joined to.

use std::fmt;
use std::path::Path;

/// The longest path, in bytes: the kernel's `PATH_MAX` without the NUL.
const PATH_BYTES_MAX: usize = 4095;
/// The longest name, in bytes: the kernel's `NAME_MAX`.
const NAME_BYTES_MAX: usize = 255;

/// A relative path without `.`, `..`, empty parts or NUL, at most 4095 bytes long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(String);

/// Why a text is not a [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a relative path that stays inside its directory")]
pub struct PathEscape;

impl RelPath {
    /// Parses `text`.
    ///
    /// # Errors
    /// A path that is absolute, leaves its directory, or is too long for the kernel.
    pub fn parse(text: &str) -> Result<Self, PathEscape> {
        let inside = text.len() <= PATH_BYTES_MAX
            && !text.contains('\0')
            && text
                .split('/')
                .all(|part| !matches!(part, "" | "." | "..") && part.len() <= NAME_BYTES_MAX);
        if inside { Ok(Self(text.to_owned())) } else { Err(PathEscape) }
    }

    /// The path as text, parts separated by `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a standard library path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Everything before the last part; `None` for a bare name.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// The last part.
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }

    /// The parts, first to last.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_paths_that_stay_inside_are_taken() {
        for good in ["a", "a/b", "check/solution.py", "..a", "a..", "-rf", "a b", "é"] {
            assert!(RelPath::parse(good).is_ok(), "{good:?} was refused");
        }
        let long = "a".repeat(256);
        for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0b", &long]
        {
            assert_eq!(RelPath::parse(bad), Err(PathEscape), "{bad:?} was taken");
        }
    }

    #[test]
    fn parts_and_parent_agree() {
        let path = RelPath::parse("a/b/c").unwrap();
        assert_eq!(path.parts().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(path.file_name(), "c");
        assert_eq!(path.parent().unwrap().as_str(), "a/b");
        assert_eq!(RelPath::parse("a").unwrap().parent(), None);
    }

    /// Parts as attackers write them, and plain ones.
    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[a-z .-]{1,6}",
            1 => Just("..".to_owned()),
            1 => Just(".".to_owned()),
            1 => Just(String::new()),
            1 => any::<String>(),
            1 => (250_usize..260).prop_map(|bytes| "x".repeat(bytes)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn an_accepted_path_never_leaves_its_directory(
            parts in proptest::collection::vec(part(), 0..8), start in "/{0,2}",
        ) {
            let text = start + &parts.join("/");
            let Ok(path) = RelPath::parse(&text) else { return Ok(()) };
            // The standard library's view is the one that counts when the path is opened.
            let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
            prop_assert!(path.as_path().components().all(normal), "{text:?}");
            prop_assert!(!text.contains('\0') && text.len() <= PATH_BYTES_MAX);
            prop_assert!(path.parts().all(|part| part.len() <= NAME_BYTES_MAX));
        }

        #[test]
        fn an_accepted_path_is_kept_unchanged_and_splits_without_loss(
            parts in proptest::collection::vec("[^/\0]{1,8}", 1..8),
        ) {
            let text = parts.join("/");
            let plain = parts.iter().all(|part| !matches!(part.as_str(), "." | ".."));
            let path = RelPath::parse(&text);
            prop_assert_eq!(path.is_ok(), plain, "{:?}", &text);
            let Ok(path) = path else { return Ok(()) };
            prop_assert_eq!(path.as_str(), &text);
            prop_assert_eq!(path.to_string(), text.clone());
            prop_assert_eq!(RelPath::parse(path.as_str()), Ok(path.clone()));
            prop_assert_eq!(path.parts().collect::<Vec<_>>(), parts);
            // Every directory on the way is a path too, down to the first name.
            let mut again = path.file_name().to_owned();
            let mut above = path.parent();
            while let Some(directory) = above {
                prop_assert_eq!(RelPath::parse(directory.as_str()), Ok(directory.clone()));
                again = format!("{}/{again}", directory.file_name());
                above = directory.parent();
            }
            prop_assert_eq!(again, text);
        }
    }
}
