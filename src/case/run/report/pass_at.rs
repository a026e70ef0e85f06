//! pass@k: how likely it is that at least one of k trials passes.

/// The numbers of trials that a report shows, as far as there are so many.
const SHOWN: [u32; 7] = [1, 2, 5, 10, 25, 50, 100];

/// The unbiased estimate 1 - C(n-c, k) / C(n, k) from `n` graded trials of which `c` passed; nothing for a `k` that
/// is 0 or more than `n`.
pub(super) fn pass_at(n: u32, c: u32, k: u32) -> Option<f64> {
    if k == 0 || k > n || c > n {
        return None;
    }
    if n - c < k {
        return Some(1.0);
    }
    // The quotient of the binomials as a product, whose factors do not overflow.
    let none_passes =
        (n - c + 1..=n).fold(1.0, |product, i| product * (1.0 - f64::from(k) / f64::from(i)));
    Some(1.0 - none_passes)
}

/// The k of a table for at most `n` trials.
pub(super) fn shown_k(n: u32) -> Vec<u32> {
    SHOWN.into_iter().filter(|k| *k <= n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by counting all choices.
    fn counted(n: u32, c: u32, k: u32) -> f64 {
        let choices = (0_u32..1 << n).filter(|set| set.count_ones() == k);
        let (mut all, mut hit) = (0.0, 0.0);
        for set in choices {
            all += 1.0;
            hit += if set & ((1 << c) - 1) == 0 { 0.0 } else { 1.0 };
        }
        hit / all
    }

    #[test]
    fn the_estimate_is_the_share_of_choices_with_a_trial_that_passed() {
        for n in 1..=9 {
            for c in 0..=n {
                for k in 1..=n {
                    let found = pass_at(n, c, k).unwrap();
                    assert!((found - counted(n, c, k)).abs() < 1e-12, "{n} {c} {k}: {found}");
                }
            }
        }
    }

    #[test]
    fn it_is_defined_for_as_many_trials_as_there_are() {
        assert_eq!(pass_at(0, 0, 1), None);
        assert_eq!(pass_at(3, 1, 4), None);
        assert_eq!(pass_at(3, 1, 0), None);
        assert_eq!(pass_at(10_000, 0, 100), Some(0.0));
        assert_eq!(pass_at(10_000, 10_000, 1), Some(1.0));
        assert_eq!(shown_k(0), [0_u32; 0]);
        assert_eq!(shown_k(5), [1, 2, 5]);
    }
}
