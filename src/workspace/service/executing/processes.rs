//! The processes of a workspace whose programs share one sandbox.

use std::time::Duration;

use crate::config::TokenName;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::request::{SandboxScope, WorkspaceSettings};
use crate::workspace::service::WorkspaceService;
use crate::workspace::service::live::WorkspaceUse;
use crate::workspace::sessions::Session;
use crate::workspace::sessions::signal::named_signal;
use crate::workspace::view::{ProcessView, WorkspaceView};
use cofferdam_core::values::deadline::Deadline;

/// How long killed programs may take to die.
const RESTARTED_WITHIN: Duration = Duration::from_secs(10);

impl WorkspaceService {
    /// The processes of a workspace, also those that programs left. This is no use of it.
    ///
    /// # Errors
    /// There is no such workspace, or its programs share no sandbox.
    pub fn processes(&self, owner: &TokenName, id: &str) -> Result<Vec<ProcessView>, EngineError> {
        let kept = self.reaping.registry.look(owner, id)?;
        check_shared(kept.settings())?;
        // A parked workspace has no processes.
        let Some(live) = kept.live() else { return Ok(Vec::new()) };
        let Some(sandbox) = live.shared.current() else { return Ok(Vec::new()) };
        let view = |process| ProcessView::of(process, |control| live.sessions.name_of(control));
        Ok(sandbox.processes().into_iter().map(view).collect())
    }

    /// Sends the signal called `name` to a process.
    ///
    /// # Errors
    /// As [`WorkspaceService::processes`]; there is no such signal or process.
    pub fn signal_process(
        &self,
        owner: &TokenName,
        id: &str,
        pid: Option<i32>,
        name: &str,
    ) -> Result<(), EngineError> {
        let used = self.enter_shared(owner, id)?;
        let signal = named_signal(name)?;
        let sandbox = used.workspace().shared.current();
        let is_there = match sandbox.zip(pid) {
            Some((sandbox, pid)) => sandbox.signal(pid, signal as i32)?,
            None => false,
        };
        if is_there { Ok(()) } else { Err(no_process()) }
    }

    /// Kills everything in a workspace; its files stay. The next program starts a new sandbox.
    ///
    /// # Errors
    /// As [`WorkspaceService::processes`], or something is not dead in time.
    pub fn restart(&self, owner: &TokenName, id: &str) -> Result<WorkspaceView, EngineError> {
        let used = self.enter_shared(owner, id)?;
        let live = used.workspace();
        let deadline = Deadline::after(RESTARTED_WITHIN);
        // Listed before the programs: each of them has ended by itself or is among those killed here.
        let (sessions, kernels) = (live.sessions.live(), live.contexts.kernels());
        let programs = live.programs();
        programs.iter().for_each(|(_, program)| program.cancel.cancel());
        let is_dead = programs.iter().all(|(number, _)| live.wait_program(*number, deadline))
            // A thread records the end a moment later. Until then a context would use its dead kernel.
            && sessions.iter().all(|session| session.wait_end(deadline))
            && kernels.iter().all(|kernel| kernel.wait_end(deadline).is_some());
        if !is_dead {
            let words = "a killed program is not dead yet";
            return Err(EngineError::new(EngineCode::SandboxFailed, words));
        }
        WorkspaceView::of(live)
    }

    /// Kills what the program of an ended session left, if its workspace has one sandbox.
    ///
    /// # Errors
    /// There is no such workspace, or something is not dead in time.
    pub fn kill_left(
        &self,
        owner: &TokenName,
        id: &str,
        session: &Session,
    ) -> Result<(), EngineError> {
        let live = self.reaping.registry.find_live(owner, id)?;
        match live.and_then(|live| live.shared.current()) {
            Some(sandbox) => sandbox.kill_left(session.control()),
            None => Ok(()),
        }
    }

    fn enter_shared(&self, owner: &TokenName, id: &str) -> Result<WorkspaceUse, EngineError> {
        check_shared(self.reaping.registry.look(owner, id)?.settings())?;
        self.enter(owner, id)
    }
}

fn check_shared(settings: &WorkspaceSettings) -> Result<(), EngineError> {
    match settings.sandbox {
        SandboxScope::Workspace => Ok(()),
        SandboxScope::Program => {
            let words = "each program of the workspace has a sandbox of its own";
            Err(EngineError::new(EngineCode::WorkspaceNotShared, words))
        }
    }
}

fn no_process() -> EngineError {
    EngineError::new(EngineCode::ProcessNotFound, "no such process")
}
