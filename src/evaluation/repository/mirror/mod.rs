//! Bare mirrors of repositories, in the cache.
//!
//! A mirror is `<key>/<generation>/`: the packs that git fetched in a sandbox, and files that are written
//! here. `<key>/current` links to the newest generation, which is never changed.

mod fetch;
pub(super) mod store;

pub use fetch::MirrorFetch;
pub use store::MirrorStore;
