//! Whose turn it is: from token to token, then from batch to batch (pure).

use std::collections::BTreeMap;
use std::ops::Bound;

/// The waiting batches of each token, by age.
pub type WaitingBatches = BTreeMap<String, BTreeMap<u64, String>>;

/// Who had the last turns.
#[derive(Debug, Default)]
pub struct Turns {
    last_owner: Option<String>,
    last_batch: BTreeMap<String, u64>,
}

impl Turns {
    /// The batch whose turn it is; its turn is over with this call.
    pub fn next(&mut self, waiting: &WaitingBatches) -> Option<String> {
        self.last_batch.retain(|owner, _| waiting.contains_key(owner));
        let (owner, batches) = after(waiting, self.last_owner.as_ref())?;
        let (order, batch_id) = after(batches, self.last_batch.get(owner))?;
        self.last_owner = Some(owner.clone());
        self.last_batch.insert(owner.clone(), *order);
        Some(batch_id.clone())
    }
}

/// The entry after `last`, or the first.
fn after<'a, K: Ord, V>(map: &'a BTreeMap<K, V>, last: Option<&K>) -> Option<(&'a K, &'a V)> {
    let next = last.and_then(|last| map.range((Bound::Excluded(last), Bound::Unbounded)).next());
    next.or_else(|| map.first_key_value())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn waiting(batches: &[(&str, u64)]) -> WaitingBatches {
        let mut waiting = WaitingBatches::new();
        for (owner, order) in batches {
            let of_owner = waiting.entry((*owner).to_owned()).or_default();
            of_owner.insert(*order, format!("{owner}{order}"));
        }
        waiting
    }

    #[test]
    fn turns_go_from_token_to_token_then_from_batch_to_batch() {
        for (batches, turns) in [
            (&[("a", 1)][..], "a1 a1"),
            (&[("a", 1), ("a", 2)], "a1 a2 a1 a2"),
            (&[("a", 1), ("a", 2), ("b", 3)], "a1 b3 a2 b3 a1 b3"),
            (&[("a", 1), ("b", 2), ("c", 3)], "a1 b2 c3 a1"),
            (&[], ""),
        ] {
            let mut order = Turns::default();
            for turn in turns.split_whitespace() {
                assert_eq!(order.next(&waiting(batches)).as_deref(), Some(turn), "{batches:?}");
            }
        }
        assert_eq!(Turns::default().next(&waiting(&[])), None);
    }

    proptest! {
        #[test]
        fn no_token_waits_longer_than_one_turn_of_each_other(
            sets in prop::collection::vec(prop::collection::btree_set((0_u8..5, 0_u64..4), 1..9), 1..40)
        ) {
            let mut turns = Turns::default();
            let mut waits: BTreeMap<String, usize> = BTreeMap::new();
            for set in sets {
                let mut all = WaitingBatches::new();
                for (owner, order) in &set {
                    let owner = owner.to_string();
                    all.entry(owner.clone()).or_default().insert(*order, format!("{owner}.{order}"));
                }
                let batch = turns.next(&all).unwrap();
                let (served, order) = batch.split_once('.').unwrap();
                prop_assert!(all[served].contains_key(&order.parse().unwrap()));
                waits.retain(|owner, _| all.contains_key(owner) && owner != served);
                for owner in all.keys().filter(|owner| *owner != served) {
                    let waited = waits.entry(owner.clone()).or_default();
                    *waited += 1;
                    prop_assert!(*waited <= 4, "{owner} waited {waited} turns");
                }
            }
        }
    }
}
