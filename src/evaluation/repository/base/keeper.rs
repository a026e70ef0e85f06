//! The bases that are kept: those of this process, mounted, and those on disk.

use std::sync::Arc;
use std::time::SystemTime;

use super::kept::{Base, BaseCache};
use super::saved::SavedBases;
use crate::evaluation::cache::{CacheKind, CacheSpace, touch};
use crate::evaluation::trees::EvaluationTrees;
use cofferdam_sandbox::engine::DiskSpace;
use cofferdam_tree::StopCheck;

/// The bases that are kept.
#[derive(Debug)]
pub struct Bases {
    mounted: BaseCache,
    /// None if no later process would find them.
    saved: Option<SavedBases>,
    space: Arc<CacheSpace>,
}

impl Bases {
    /// Those in `space`, and those that this process makes.
    pub fn new(space: Arc<CacheSpace>) -> Self {
        let saved = SavedBases::new(space.directory(CacheKind::Bases));
        let saved = Some(saved).filter(|_| space.outlives_process());
        Self { mounted: BaseCache::new(space.bytes_max()), saved, space }
    }

    /// Whether a base with that digest is kept. It may turn out to be broken.
    pub fn has(&self, digest: &str) -> bool {
        let now = SystemTime::now();
        self.mounted.find(digest, now).is_some()
            || self.saved.as_ref().is_some_and(|saved| saved.has(digest, now))
    }

    /// The base with that digest, if it is kept. One on disk gets `room` in `trees`. The caller lets one thread
    /// at a time ask for each.
    pub fn find(
        &self,
        digest: &str,
        of: (&EvaluationTrees, DiskSpace),
        stop: StopCheck<'_>,
    ) -> Option<Arc<Base>> {
        if let Some(base) = self.mounted.find(digest, SystemTime::now()) {
            self.saved.iter().for_each(|saved| touch(&saved.place(digest)));
            return Some(base);
        }
        let base = Arc::new(self.saved.as_ref()?.restore(digest, of, stop)?);
        self.mounted.keep(&base, SystemTime::now());
        Some(base)
    }

    /// Keeps a base. If it cannot be saved, it is kept as long as the process.
    pub fn keep(&self, base: &Arc<Base>, stop: StopCheck<'_>) {
        self.mounted.keep(base, SystemTime::now());
        let Some(saved) = &self.saved else { return };
        match saved.save(base, self.space.bytes_max(), stop) {
            Ok(()) => self.space.make_room(&saved.place(&base.digest)),
            Err(error) => log::warn!("a base is not saved: {error}"),
        }
    }
}
