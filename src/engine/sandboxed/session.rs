//! A program of this host that is talked with.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::config::TokenName;
use crate::engine::sessions::{
    ProgramLog, ProgramPoll, ProgramResultProvider, ProgramSession, ProgramStateProvider,
};
use crate::workspace::sessions::{Session, SessionState};
use crate::workspace::{EngineCode, EngineError, ProgramReport, WorkspaceService};
use cofferdam_core::values::deadline::Deadline;

/// How long a killed program may take to die, besides its grace.
const DEATH_WAIT: Duration = Duration::from_secs(10);

/// A program that runs or ran in a sandbox of its own. Dropping it leaves the program running; dropping its
/// engine kills it.
#[derive(Debug)]
pub struct SandboxSession {
    service: Weak<WorkspaceService>,
    owner: TokenName,
    workspace_id: String,
    session: Arc<Session>,
}

impl SandboxSession {
    pub(super) fn new(
        service: Weak<WorkspaceService>,
        owner: TokenName,
        workspace_id: String,
        session: Arc<Session>,
    ) -> Self {
        Self { service, owner, workspace_id, session }
    }

    /// What else can be done with it: resize its terminal, send a signal, close its input.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Waits until the program has ended and everything of it is dead. Returns false if `wait` passes first.
    pub fn wait_end(&self, wait: Duration) -> bool {
        self.session.wait_end(Deadline::after(wait))
    }

    fn wait_death(&self, grace: Duration) -> Result<(), EngineError> {
        if self.wait_end(grace.saturating_add(DEATH_WAIT)) {
            return Ok(());
        }
        let words = "the killed program is not dead yet";
        Err(EngineError::new(EngineCode::SandboxFailed, words))
    }
}

impl ProgramSession for SandboxSession {
    fn id(&self) -> &str {
        self.session.id()
    }

    fn poll(&self, limit: Option<usize>) -> ProgramPoll {
        self.session.poll(some(limit)).into()
    }

    fn log(&self, offset: Option<u64>, limit: Option<usize>) -> ProgramLog {
        self.session.read(offset.unwrap_or_default(), some(limit)).into()
    }

    fn wait_output(&self, wait: Duration) -> bool {
        self.session.wait_news(Deadline::after(wait))
    }

    fn write(&self, data: &[u8], newline: bool) -> Result<(), EngineError> {
        let mut bytes = data.to_vec();
        bytes.extend(newline.then_some(b'\n'));
        self.session.write(&bytes)
    }

    fn kill(&self, grace: Duration) -> Result<(), EngineError> {
        self.session.terminate(grace);
        self.wait_death(grace)
    }

    fn close(&self) -> Result<(), EngineError> {
        self.session.cancel();
        self.wait_death(Duration::ZERO)?;
        // An engine that was dropped, or a workspace that has ended, has no sessions to forget.
        if let Some(service) = self.service.upgrade() {
            match service.forget_session(&self.owner, &self.workspace_id, self.session.id()) {
                Err(error) if error.code != EngineCode::WorkspaceNotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn state_provider(&self) -> Option<&dyn ProgramStateProvider> {
        Some(self)
    }

    fn result_provider(&self) -> Option<&dyn ProgramResultProvider> {
        Some(self)
    }
}

impl ProgramStateProvider for SandboxSession {
    fn state(&self) -> SessionState {
        self.session.state()
    }
}

impl ProgramResultProvider for SandboxSession {
    fn run_result(&self) -> Result<Arc<ProgramReport>, EngineError> {
        self.session.result()
    }
}

/// A limit of lines; 0 means no limit.
fn some(limit: Option<usize>) -> Option<usize> {
    limit.filter(|limit| *limit > 0)
}
