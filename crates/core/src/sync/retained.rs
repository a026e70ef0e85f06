//! Values that are kept until a sandbox is dead.

use std::fmt::Debug;
use std::sync::Arc;

/// Values that are dropped together with the last clone.
///
/// A run hands its host id and its permit to the sandbox, which keeps them until it is dead.
#[derive(Debug, Clone, Default)]
pub struct Retained {
    values: Vec<Arc<dyn Debug + Send + Sync>>,
}

impl Retained {
    /// Retains `value`.
    pub fn of(value: Arc<dyn Debug + Send + Sync>) -> Self {
        Self { values: vec![value] }
    }

    /// Also retains `value`.
    #[must_use]
    pub fn and(mut self, value: Arc<dyn Debug + Send + Sync>) -> Self {
        self.values.push(value);
        self
    }

    /// Also retains everything in `other`.
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
