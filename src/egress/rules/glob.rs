//! The pattern of a rule's path: `*` stands for any characters.

use super::path::{fold, normalize_escapes};

/// A pattern over whole texts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StarPattern(Vec<String>);

impl StarPattern {
    fn new(text: &str) -> Self {
        Self(text.split('*').map(str::to_owned).collect())
    }

    fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.0.first().is_none_or(|only| only == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            match rest.split_once(part.as_str()) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }
}

/// The pattern of a rule's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathGlob {
    exact: StarPattern,
    /// The same in the form of [`fold`].
    folded: StarPattern,
}

impl PathGlob {
    /// Parses a pattern, or returns why no path could fit it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.starts_with(['/', '*']) {
            return Err("want a pattern that begins with / or *");
        }
        if text.contains(['?', '#']) {
            return Err("the query is no part of a path");
        }
        if text.chars().any(char::is_control) {
            return Err("holds a control character");
        }
        if text.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err("holds a dot segment, which no judged path has");
        }
        let normal = normalize_escapes(text).ok_or("holds an escape that no judged path has")?;
        let folded: Vec<String> = normal.split('*').map(fold).collect();
        Ok(Self { exact: StarPattern::new(&normal), folded: StarPattern(folded) })
    }

    /// Whether the canonical `path` fits.
    pub fn matches(&self, path: &str) -> bool {
        self.exact.matches(path)
    }

    /// Whether one of the `folded` forms of a path fits.
    pub fn matches_folded(&self, folded: &[String]) -> bool {
        folded.iter().any(|form| self.folded.matches(form))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (glob, path, fits) in [
            ("*", "/", true),
            ("*", "/a/b", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1/a/b", true),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v2/v1/", false),
            ("/v1/*", "//v1/a", false),
            ("*/models", "/v1/models", true),
            ("*/models", "/v1/models/x", false),
            ("/a*b*c", "/abbc", true),
            ("/a*b*c", "/acb", false),
            ("/a*a", "/a", false),
            ("/a*a", "/aa", true),
            ("/a**b", "/ab", true),
            ("/caf\u{e9}", "/caf%C3%A9", true),
            ("/%61%2a", "/a%2A", true),
            ("/V1", "/v1", false),
        ] {
            assert_eq!(PathGlob::parse(glob).unwrap().matches(path), fits, "{glob} {path}");
        }
        for glob in
            ["", "v1", "/a?b", "/a#", "/a/../b", "/.", "/a%2fb", "/%", "/%0", "/a\\b", "/a\n"]
        {
            assert!(PathGlob::parse(glob).is_err(), "{glob:?}");
        }
    }
}
