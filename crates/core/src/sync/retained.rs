//! Values that stay taken until something else is over.

use std::fmt::Debug;
use std::sync::Arc;

/// Values that are released together: when the last clone that has them is dropped. A run gives
/// them to its sandbox, which keeps them until it is dead: its host id, and its permit to run.
#[derive(Debug, Clone, Default)]
pub struct Retained {
    values: Vec<Arc<dyn Debug + Send + Sync>>,
}

impl Retained {
    /// Retains `value` alone.
    pub fn of(value: Arc<dyn Debug + Send + Sync>) -> Self {
        Self { values: vec![value] }
    }

    /// Retains `value` too.
    #[must_use]
    pub fn and(mut self, value: Arc<dyn Debug + Send + Sync>) -> Self {
        self.values.push(value);
        self
    }

    /// Retains everything that `other` does.
    pub fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_released_with_the_last_that_retains_it() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let retained = Retained::of(first.clone());
        let mut both = retained.clone();
        both.extend(Retained::default().and(second.clone()));
        drop(retained);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 2));
        drop(both);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    }
}
