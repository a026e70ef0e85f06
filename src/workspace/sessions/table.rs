//! The sessions of one workspace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::session::{Session, SessionState};
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::sync::run_control::RunControl;

/// The sessions of one workspace, by their place in the order of creation.
#[derive(Debug, Default)]
pub struct SessionTable(Mutex<TableFields>);

#[derive(Debug, Default)]
struct TableFields {
    next: u64,
    sessions: BTreeMap<u64, Arc<Session>>,
    /// Sessions that are being started.
    starting: usize,
}

/// Room for a session that is being started.
#[derive(Debug)]
pub struct SessionSlot<'a> {
    table: &'a SessionTable,
}

impl SessionTable {
    /// Makes room for one more of at most `sessions_max`: the oldest session that has ended goes.
    ///
    /// # Errors
    /// So many run.
    pub fn reserve(&self, sessions_max: usize) -> Result<SessionSlot<'_>, EngineError> {
        let mut table = self.lock();
        while table.sessions.len() + table.starting >= sessions_max {
            let oldest = table.sessions.iter().find(|(_, session)| session.end().is_some());
            let Some(number) = oldest.map(|(number, _)| *number) else {
                let words = format!("the workspace has {sessions_max} sessions");
                return Err(EngineError::new(EngineCode::WorkspaceLimit, words)
                    .with("limit", "sessions")
                    .with("max", sessions_max));
            };
            table.sessions.remove(&number);
        }
        table.starting += 1;
        Ok(SessionSlot { table: self })
    }

    /// The session called `name`.
    ///
    /// # Errors
    /// No session has this id.
    pub fn find(&self, name: &str) -> Result<Arc<Session>, EngineError> {
        let table = self.lock();
        let found = table.sessions.values().find(|session| session.id() == name);
        found.cloned().ok_or_else(no_session)
    }

    /// At most `limit` sessions after number `after`, and the last number if there are more.
    pub fn page(&self, after: Option<u64>, limit: usize) -> (Vec<SessionState>, Option<u64>) {
        let table = self.lock();
        let from = after.map_or(0, |after| after.saturating_add(1));
        let mut rest = table.sessions.range(from..);
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(number, _)| **number);
        let states = page.iter().map(|(_, session)| session.state()).collect();
        (states, last.filter(|_| rest.next().is_some()))
    }

    /// The session whose program has that control.
    pub fn name_of(&self, control: &RunControl) -> Option<String> {
        let table = self.lock();
        let found = table.sessions.values().find(|session| session.control().is_same(control));
        found.map(|session| session.id().to_owned())
    }

    /// How many sessions there are, ended ones too.
    pub fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    /// How many of them run.
    pub fn running(&self) -> usize {
        self.live().len()
    }

    /// The sessions that run.
    pub fn live(&self) -> Vec<Arc<Session>> {
        let table = self.lock();
        table.sessions.values().filter(|session| session.end().is_none()).cloned().collect()
    }

    /// Forgets the session called `name`.
    pub fn forget(&self, name: &str) {
        self.lock().sessions.retain(|_, session| session.id() != name);
    }

    /// Forgets sessions that ended more than `keep` ago.
    pub fn forget_ended(&self, keep: Duration) {
        let is_kept = |session: &Session| {
            session.end().is_none_or(|end| end.exited_at.elapsed().is_ok_and(|age| age < keep))
        };
        self.lock().sessions.retain(|_, session| is_kept(session));
    }

    fn lock(&self) -> MutexGuard<'_, TableFields> {
        // Each change leaves the table consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionSlot<'_> {
    /// Adds the session.
    pub fn fill(self, session: Arc<Session>) {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.sessions.insert(number, session);
    }
}

impl Drop for SessionSlot<'_> {
    fn drop(&mut self) {
        self.table.lock().starting -= 1;
    }
}

/// The error that there is no such session.
pub fn no_session() -> EngineError {
    EngineError::new(EngineCode::SessionNotFound, "no such session")
}
