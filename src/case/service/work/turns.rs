//! Whose turn it is (pure).

use std::collections::HashMap;

/// A run that a worker could work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The token whose run it is.
    pub owner: &'a str,
    /// Its place in the order of admission.
    pub order: u64,
    /// Workers that work on it.
    pub running: usize,
    /// Whether there is work for one more.
    pub has_work: bool,
}

/// The order of the run whose turn it is: the oldest with work of the token for which the fewest workers work; among
/// such tokens, of the one that has waited longest.
pub fn next_turn<'a>(candidates: impl Iterator<Item = Candidate<'a>>) -> Option<u64> {
    let mut owners: HashMap<&str, (usize, Option<u64>)> = HashMap::new();
    for candidate in candidates {
        let (running, oldest) = owners.entry(candidate.owner).or_default();
        *running += candidate.running;
        if candidate.has_work {
            let order = oldest.unwrap_or(u64::MAX).min(candidate.order);
            *oldest = Some(order);
        }
    }
    let with_work = owners.into_values().filter_map(|(running, oldest)| Some((running, oldest?)));
    with_work.min().map(|(_, order)| order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_with_the_fewest_running_cells_is_next_with_its_oldest_run() {
        let run = |owner, order, running, has_work| Candidate { owner, order, running, has_work };
        for (candidates, wanted) in [
            (vec![], None),
            (vec![run("a", 1, 2, false)], None),
            (vec![run("a", 1, 0, true), run("b", 2, 0, true)], Some(1)),
            (vec![run("a", 1, 1, true), run("b", 2, 0, true)], Some(2)),
            (vec![run("a", 1, 1, false), run("a", 3, 0, true), run("b", 4, 0, true)], Some(4)),
            (vec![run("a", 1, 1, true), run("a", 3, 0, true), run("b", 4, 2, true)], Some(1)),
            (vec![run("a", 3, 0, true), run("a", 2, 0, true)], Some(2)),
        ] {
            assert_eq!(next_turn(candidates.iter().copied()), wanted, "{candidates:?}");
        }
    }
}
