//! Concurrent solutions do not affect each other.

use cofferdam_test_server::shipped;

use crate::queue::{Case, run_all};

/// Rounds of the short form; `LANGS_ROUNDS` sets another number.
const ROUNDS: usize = 1;

#[test]
fn concurrent_solutions_of_every_language_get_their_own_answers() {
    let asked = std::env::var("LANGS_ROUNDS").ok().map(|rounds| rounds.parse().unwrap());
    let service = shipped::setup().start();
    let languages = shipped::available(&service);
    let rounds = 0..asked.unwrap_or(ROUNDS);
    // One adds, the other subtracts; they are adjacent in the queue.
    let cases = rounds.flat_map(|_| &languages).flat_map(|(slug, language)| {
        ["good", "wrong"].map(|name| Case { slug, language, name: name.to_owned() })
    });
    run_all(&service, cases.collect());
}
