//! The goals of the languages, and the bursts that each of them gets.

/// The most that a run in a runtime started ahead may take, as a share of a bare `make test`.
const GOALS: &[(f64, &[&str])] = &[
    (0.25, &["python"]),
    (0.35, &["java", "js", "php", "ruby"]),
    (0.4, &["clojure", "csharp", "elixir", "kotlin", "ts"]),
    (0.5, &["haskell"]),
];

/// The languages whose runs need so much that fewer of them are posted at once.
const HEAVY: &[&str] =
    &["clojure", "csharp", "elixir", "haskell", "java", "kotlin", "swift", "ts", "zig"];

/// Runs at once, some of them in runtimes started ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// The number of runs, for all of which the service has room.
    pub runs: usize,
    /// `STANDBY_MAX`: the number of runtimes that wait for them.
    pub standby_max: usize,
}

/// The burst of most languages.
pub const LIGHT: Burst = Burst { runs: 50, standby_max: 10 };
/// The burst of a heavy language.
pub const SMALL: Burst = Burst { runs: 8, standby_max: 4 };

/// The goal of the language `slug`, if it has one.
pub fn goal(slug: &str) -> Option<f64> {
    let found = GOALS.iter().find(|(_, slugs)| slugs.contains(&slug));
    found.map(|(at_most, _)| *at_most)
}

/// The burst of the language `slug`.
pub fn burst(slug: &str) -> Burst {
    if HEAVY.contains(&slug) { SMALL } else { LIGHT }
}
