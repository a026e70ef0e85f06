//! Which paths of an archive are taken, by what: 12 bytes for each, so that the largest archive is judged
//! in a few megabytes.

/// Bits of the hash of a path that are kept.
const HASH_BITS: u32 = 56;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;
/// Bits of a size that lie beside the hash; the others are a word of their own.
const SIZE_HIGH_BITS: u32 = 6;
/// The largest file that an archive may have, bytes.
pub(super) const ARCHIVED_BYTES_MAX: u64 = (1 << (32 + SIZE_HIGH_BITS)) - 1;
/// Kinds of claims; 0 is a free slot.
const DIRECTORY: u64 = 1;
const LINK: u64 = 2;
const FILE: u64 = 3;
/// A table has one slot in so many more than it takes claims.
const SPARE: usize = 8;
/// A table that is full gives way to one with so many times the slots.
const GROWTH: usize = 8;
/// Slots of the first table, about.
const FIRST_SLOTS: usize = 512;

/// What has a path in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    Directory,
    Link,
    File { bytes: u64 },
}

/// The claims of an archive, by the hashes of their paths. Two paths with one hash only refuse the archive.
#[derive(Debug)]
pub(super) struct PathClaims {
    /// Hash, kind, and the high bits of the size.
    words: Vec<u64>,
    /// The low bits of the size.
    sizes: Vec<u32>,
    len: usize,
    /// Slots of the largest table that may be needed.
    slots_max: usize,
}

impl PathClaims {
    /// Room for up to `entries_max` claims, and one that is too many.
    pub(super) fn new(entries_max: u64) -> Self {
        let entries = usize::try_from(entries_max).unwrap_or(usize::MAX / 2).saturating_add(1);
        let slots_max = entries.saturating_add(entries / SPARE).saturating_add(2);
        let mut claims = Self { words: Vec::new(), sizes: Vec::new(), len: 0, slots_max };
        claims.make_slots(claims.slots_of(FIRST_SLOTS));
        claims
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The claim of the path with this hash.
    pub(super) fn get(&self, hash: u64) -> Option<Claim> {
        let slot = self.slot(hash);
        self.words.get(slot).filter(|word| **word != 0).map(|_| self.claim_at(slot))
    }

    /// Makes the claim of the path with this hash `claim`, and returns what it was. The size of a file is at
    /// most [`ARCHIVED_BYTES_MAX`].
    pub(super) fn insert(&mut self, hash: u64, claim: Claim) -> Option<Claim> {
        let before = self.get(hash);
        if before.is_none() {
            if self.len >= self.claims_max() {
                self.grow();
            }
            self.len += 1;
        }
        let (kind, bytes) = match claim {
            Claim::Directory => (DIRECTORY, 0),
            Claim::Link => (LINK, 0),
            Claim::File { bytes } => (FILE, bytes.min(ARCHIVED_BYTES_MAX)),
        };
        let word = ((hash & HASH_MASK) << 8) | (kind << SIZE_HIGH_BITS) | (bytes >> 32);
        let slot = self.slot(hash);
        self.put(slot, word, u32::try_from(bytes & u64::from(u32::MAX)).unwrap_or_default());
        before
    }

    /// The most memory that the tables take, bytes: those of the largest, and of the one before while claims
    /// are moved.
    #[cfg(test)]
    pub(super) fn bytes_max(&self) -> usize {
        let slots = self.slots_max + self.slots_max.div_ceil(GROWTH);
        slots * (size_of::<u64>() + size_of::<u32>())
    }

    fn claim_at(&self, slot: usize) -> Claim {
        let word = self.words.get(slot).copied().unwrap_or_default();
        match (word >> SIZE_HIGH_BITS) & 0b11 {
            DIRECTORY => Claim::Directory,
            LINK => Claim::Link,
            _ => {
                let high = word & ((1 << SIZE_HIGH_BITS) - 1);
                let low = self.sizes.get(slot).copied().unwrap_or_default();
                Claim::File { bytes: (high << 32) | u64::from(low) }
            }
        }
    }

    /// The slot with this hash, or the free one that it would get. There always is one.
    fn slot(&self, hash: u64) -> usize {
        let hash = hash & HASH_MASK;
        let slots = self.words.len();
        let first = (u128::from(hash) * slots as u128) >> HASH_BITS;
        let mut slot = usize::try_from(first).unwrap_or_default();
        while self.words.get(slot).is_some_and(|word| *word != 0 && word >> 8 != hash) {
            slot = (slot + 1) % slots;
        }
        slot
    }

    fn put(&mut self, slot: usize, word: u64, size: u32) {
        if let (Some(place), Some(low)) = (self.words.get_mut(slot), self.sizes.get_mut(slot)) {
            (*place, *low) = (word, size);
        }
    }

    /// How many claims the table takes.
    fn claims_max(&self) -> usize {
        self.words.len() - self.words.len() / (SPARE + 1) - 1
    }

    /// The number of slots of a table with about `slots`: the last one of the row must not be larger than
    /// needed, so the row is counted from its end.
    fn slots_of(&self, slots: usize) -> usize {
        let mut found = self.slots_max;
        while found / GROWTH >= slots {
            found = found.div_ceil(GROWTH);
        }
        found
    }

    /// Moves to a table that takes more.
    fn grow(&mut self) {
        let slots = self.slots_of(self.words.len() + 1);
        let words = std::mem::take(&mut self.words);
        let sizes = std::mem::take(&mut self.sizes);
        self.make_slots(slots);
        for (word, size) in words.into_iter().zip(sizes).filter(|(word, _)| *word != 0) {
            self.put(self.slot(word >> 8), word, size);
        }
    }

    fn make_slots(&mut self, slots: usize) {
        (self.words, self.sizes) = (vec![0; slots], vec![0; slots]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;

    #[test]
    fn a_million_entries_take_less_than_16_mib() {
        assert!(PathClaims::new(1_000_000).bytes_max() < 15 << 20);
        assert!(PathClaims::new(10).bytes_max() < 1 << 10);
    }

    #[test]
    fn each_number_of_entries_has_room_and_no_table_is_larger_than_the_last() {
        for entries in (0..700).chain([4_607, 4_608, 20_000, 100_003]) {
            let mut claims = PathClaims::new(entries);
            for number in 0..=entries {
                // Spread as hashes are, and all different.
                let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                assert_eq!(claims.insert(hash, Claim::File { bytes: number }), None);
            }
            assert_eq!(claims.len() as u64, entries + 1);
            assert!(claims.words.len() <= claims.slots_max, "{entries}");
            assert!(claims.words.contains(&0), "{entries}: a search must end");
        }
    }

    fn a_claim() -> impl Strategy<Value = Claim> {
        prop_oneof![
            Just(Claim::Directory),
            Just(Claim::Link),
            (0..=ARCHIVED_BYTES_MAX).prop_map(|bytes| Claim::File { bytes }),
            Just(Claim::File { bytes: ARCHIVED_BYTES_MAX }),
        ]
    }

    proptest! {
        #![proptest_config(Config { cases: 100, failure_persistence: None, ..Config::default() })]

        #[test]
        fn claims_are_those_of_a_map(
            // Hashes that meet, from both ends of the table, where a search begins anew.
            given in proptest::collection::vec((0..40_u64, any::<bool>(), a_claim()), 0..200),
        ) {
            let mut claims = PathClaims::new(80);
            let mut model = HashMap::new();
            for (number, is_high, claim) in given {
                let hash = if is_high { HASH_MASK - number } else { number };
                prop_assert_eq!(claims.get(hash), model.get(&hash).copied());
                prop_assert_eq!(claims.insert(hash, claim), model.insert(hash, claim));
                prop_assert_eq!(claims.len(), model.len());
            }
        }
    }
}
