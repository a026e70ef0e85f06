//! The contexts of one workspace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::{CodeContext, ContextView};
use super::kernel::RunningKernel;
use super::turns::no_context;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::kernels::KernelLanguage;

/// The contexts of one workspace, by their place in the order of creation.
#[derive(Debug, Default)]
pub struct ContextTable(Mutex<ContextRows>);

#[derive(Debug, Default)]
struct ContextRows {
    next: u64,
    contexts: BTreeMap<u64, Arc<CodeContext>>,
    /// The language's own contexts.
    own: Vec<(KernelLanguage, u64)>,
}

impl ContextTable {
    /// Adds a context to at most `contexts_max`.
    ///
    /// # Errors
    /// There are so many.
    pub fn insert(
        &self,
        context: CodeContext,
        contexts_max: usize,
    ) -> Result<Arc<CodeContext>, EngineError> {
        Ok(self.lock().insert(context, contexts_max)?.1)
    }

    /// The context that `language` has without being asked for one by its id. If it is missing, `make` makes it,
    /// as one of at most `contexts_max`.
    ///
    /// # Errors
    /// There are so many.
    pub fn own(
        &self,
        language: KernelLanguage,
        contexts_max: usize,
        make: impl FnOnce() -> CodeContext,
    ) -> Result<Arc<CodeContext>, EngineError> {
        let mut rows = self.lock();
        let known = rows.own.iter().find(|(known, _)| *known == language);
        if let Some(own) = known.and_then(|(_, number)| rows.contexts.get(number)) {
            return Ok(Arc::clone(own));
        }
        let (number, own) = rows.insert(make(), contexts_max)?;
        rows.own.push((language, number));
        Ok(own)
    }

    /// The context `id`.
    ///
    /// # Errors
    /// No context has this id.
    pub fn find(&self, id: &str) -> Result<Arc<CodeContext>, EngineError> {
        let rows = self.lock();
        let found = rows.contexts.values().find(|context| context.id == id);
        found.cloned().ok_or_else(no_context)
    }

    /// At most `limit` contexts after number `after`, and the last number if there are more.
    pub fn page(&self, after: Option<u64>, limit: usize) -> (Vec<ContextView>, Option<u64>) {
        let rows = self.lock();
        let from = after.map_or(0, |after| after.saturating_add(1));
        let mut rest = rows.contexts.range(from..);
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(number, _)| **number);
        let views = page.iter().map(|(_, context)| context.view()).collect();
        (views, last.filter(|_| rest.next().is_some()))
    }

    /// Their kernels, where they have one.
    pub fn kernels(&self) -> Vec<Arc<RunningKernel>> {
        self.lock().contexts.values().filter_map(|context| context.kernel()).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().contexts.len()
    }

    /// Forgets the context `id`.
    pub fn forget(&self, id: &str) {
        let mut rows = self.lock();
        rows.contexts.retain(|_, context| context.id != id);
        let ContextRows { contexts, own, .. } = &mut *rows;
        own.retain(|(_, number)| contexts.contains_key(number));
    }

    fn lock(&self) -> MutexGuard<'_, ContextRows> {
        // Each change leaves the table consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContextRows {
    fn insert(
        &mut self,
        context: CodeContext,
        contexts_max: usize,
    ) -> Result<(u64, Arc<CodeContext>), EngineError> {
        if self.contexts.len() >= contexts_max {
            let words = format!("the workspace has {contexts_max} contexts");
            return Err(EngineError::new(EngineCode::WorkspaceLimit, words)
                .with("limit", "contexts")
                .with("max", contexts_max));
        }
        let (number, context) = (self.next, Arc::new(context));
        self.next += 1;
        self.contexts.insert(number, Arc::clone(&context));
        Ok((number, context))
    }
}
