//! What evaluations keep for later ones: each entry is made once, whole or absent.

mod eviction;
mod making;
mod space;

pub use eviction::{PART, evict, remove, touch};
pub use making::{MakerTurn, Making, WaitEnded, is_raised};
pub use space::{CacheKind, CacheSpace};
