//! Which directories can contain a match of some patterns, so that a walk can skip the others.

/// Characters that make a part of a pattern non-literal.
const SPECIAL: &[u8] = b"*?[]{}\\";

/// The literal prefix and the depth of each of a set of patterns. It can report a directory that
/// contains no match, but never misses one that does.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefixFilter(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    /// The parts before the first non-literal one.
    literal: Vec<String>,
    /// The number of parts of a match; `None` if it is not fixed.
    parts: Option<usize>,
}

impl PrefixFilter {
    pub(crate) fn of(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| Pattern::of(pattern)).collect())
    }

    /// Whether something below the directory `path`, at any depth, may match.
    pub(crate) fn is_below(&self, path: &[u8]) -> bool {
        let depth = path.split(|byte| *byte == b'/').count();
        self.0.iter().any(|pattern| pattern.reaches_below(path, depth))
    }
}

impl Pattern {
    fn of(pattern: &str) -> Self {
        let is_literal = |part: &&str| !part.bytes().any(|byte| SPECIAL.contains(&byte));
        let literal = pattern.split('/').take_while(is_literal).map(str::to_owned).collect();
        // A class or a choice may contain a `/`, and `**` matches any number of parts.
        let is_counted = !pattern.contains("**") && !pattern.contains(['[', '{', '\\']);
        Self { literal, parts: is_counted.then(|| pattern.split('/').count()) }
    }

    fn reaches_below(&self, path: &[u8], depth: usize) -> bool {
        let mut agreeing = self.literal.iter().zip(path.split(|byte| *byte == b'/'));
        self.parts.is_none_or(|parts| depth < parts)
            && agreeing.all(|(literal, part)| literal.as_bytes() == part)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;
    use cofferdam_core::values::glob::Globs;

    #[test]
    fn only_directories_above_a_possible_match_are_kept() {
        for (pattern, path, reached) in [
            ("**", "a/b", true),
            ("out/**", "out", true),
            ("out/**", "out/a/b", true),
            ("out/**", "output", false),
            ("out/**", "src/out", false),
            ("*.log", "a", false),
            ("*/x", "a", true),
            ("*/x", "a/b", false),
            ("a/b/c", "a/b", true),
            ("a/b/c", "a/b/c", false),
            ("a/b/c", "b", false),
            ("{a/b,c}/x", "a/b", true),
            ("a/[bc]/**", "a/d", true),
            ("a/[bc]/**", "b", false),
        ] {
            let prefixes = PrefixFilter::of(&[pattern.to_owned()]);
            assert_eq!(prefixes.is_below(path.as_bytes()), reached, "{pattern} {path}");
        }
        assert!(!PrefixFilter::of(&[]).is_below(b"a"));
    }

    proptest! {
        #![proptest_config(Config { cases: 2_000, failure_persistence: None, ..Config::default() })]

        #[test]
        fn every_directory_above_a_match_is_reached(
            pattern in r"(a|b|\*|\*\*|\?|/|\{a,b/a\}|\[ab\]|\[!a\]|\\a){1,8}",
            parts in proptest::collection::vec("[ab]{1,2}", 2..5),
        ) {
            let path = parts.join("/");
            let Ok(globs) = Globs::parse(&[&pattern]) else { return Ok(()) };
            if globs.matches(Path::new(&path)) {
                let prefixes = PrefixFilter::of(std::slice::from_ref(&pattern));
                for length in 1..parts.len() {
                    let above = parts[..length].join("/");
                    prop_assert!(prefixes.is_below(above.as_bytes()), "{pattern} {path} {above}");
                }
            }
        }
    }
}
