//! Who may begin (pure).

use std::time::{Duration, Instant};

/// How long a free slot is kept for a direct request that was refused, where there is one slot.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The slots of a service.
#[derive(Debug)]
pub struct EvaluationSlots {
    capacity: usize,
    direct: usize,
    items: usize,
    kept: KeptSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptSlot {
    No,
    /// A direct request was refused: the next free slot is kept.
    Next,
    Until(Instant),
}

/// Why no item of a batch may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemWait {
    /// Until an evaluation ends.
    Change,
    /// Until then.
    Until(Instant),
}

impl EvaluationSlots {
    /// So many free slots.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, direct: 0, items: 0, kept: KeptSlot::No }
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.direct + self.items
    }

    /// How many there are.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes a slot for a direct request. A refusal is remembered.
    pub fn take_direct(&mut self) -> bool {
        if self.taken() >= self.capacity {
            if self.capacity == 1 {
                self.kept = KeptSlot::Next;
            }
            return false;
        }
        self.kept = KeptSlot::No;
        self.direct += 1;
        true
    }

    /// Takes a slot for an item of a batch. Of several slots one is left to direct requests.
    ///
    /// # Errors
    /// What it has to wait for.
    pub fn take_item(&mut self, now: Instant) -> Result<(), ItemWait> {
        let items_max = if self.capacity > 1 { self.capacity - 1 } else { self.capacity };
        if self.taken() >= self.capacity || self.items >= items_max {
            return Err(ItemWait::Change);
        }
        if let KeptSlot::Until(until) = self.kept
            && now < until
        {
            return Err(ItemWait::Until(until));
        }
        self.kept = KeptSlot::No;
        self.items += 1;
        Ok(())
    }

    /// Frees a slot.
    pub fn free(&mut self, is_item: bool, now: Instant) {
        let taken = if is_item { &mut self.items } else { &mut self.direct };
        *taken = taken.saturating_sub(1);
        if self.kept == KeptSlot::Next {
            self.kept = KeptSlot::Until(now + KEPT_FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_one_of_several_slots_to_direct_requests() {
        let now = Instant::now();
        for (capacity, items_max) in [(0, 0), (1, 1), (2, 1), (4, 3)] {
            let mut slots = EvaluationSlots::new(capacity);
            let begun = (0..9).filter(|_| slots.take_item(now).is_ok()).count();
            assert_eq!(begun, items_max, "of {capacity}");
            let direct = (0..9).filter(|_| slots.take_direct()).count();
            assert_eq!(direct, capacity - items_max, "of {capacity}");
        }
    }

    #[test]
    fn one_slot_is_kept_a_second_for_the_direct_request_that_was_refused() {
        let now = Instant::now();
        let mut slots = EvaluationSlots::new(1);
        assert_eq!(slots.take_item(now), Ok(()));
        assert!(!slots.take_direct());
        slots.free(true, now);
        assert_eq!(slots.take_item(now), Err(ItemWait::Until(now + KEPT_FOR)));
        assert_eq!(slots.take_item(now + KEPT_FOR), Ok(()));
        assert!(!slots.take_direct());
        slots.free(true, now);
        assert!(slots.take_direct(), "the kept slot is for a direct request");
        slots.free(false, now);
        assert_eq!(slots.take_item(now), Ok(()), "nobody was refused since");
    }
}
