//! Which directories patterns can reach into, so that the others need not be looked through.

/// What makes a part of a pattern more than its own text.
const SPECIAL: &[u8] = b"*?[]{}\\";

/// For a set of patterns, the literal beginning and the depth of each. It may take a directory for
/// one that holds a match which does not, never the other way round.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefixFilter(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    /// The parts before the first that is more than its own text.
    literal: Vec<String>,
    /// How many parts a match has; nothing where that is not said.
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
        // A class or a choice may hold a `/`, and `**` stands for any number of parts.
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
    fn only_directories_on_the_way_to_a_match_are_reached() {
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
