//! A sandbox of this host that many programs of a workspace share.

use std::sync::Arc;

use super::maker::LastingSandbox;
use crate::executor::SandboxExecutor;
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::{NotStarted, OutputSink, RunReport, RunSpec, Watch};
use cofferdam_sandbox::engine::{ProgramLabel, SharedProcess, SharedSandbox};

/// A sandbox that lasts, and what runs programs in it.
#[derive(Debug)]
pub struct HostLastingSandbox {
    /// Runs its programs.
    pub executor: Arc<SandboxExecutor>,
    /// The sandbox.
    pub sandbox: SharedSandbox,
}

impl LastingSandbox for HostLastingSandbox {
    fn is_alive(&self) -> bool {
        self.sandbox.is_alive()
    }

    fn run(
        &self,
        spec: RunSpec,
        label: ProgramLabel,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        self.executor.run_shared(&self.sandbox, spec, label, watch, sink)
    }

    fn kill_left(&self, control: &RunControl) -> Result<(), EngineError> {
        let killed = self.sandbox.kill_left(control);
        killed.map_err(|failure| EngineError::new(EngineCode::SandboxFailed, failure.to_string()))
    }

    fn processes(&self) -> Vec<SharedProcess> {
        self.sandbox.processes()
    }

    fn signal(&self, pid: i32, signal: i32) -> Result<bool, EngineError> {
        let sent = self.sandbox.signal(pid, signal);
        sent.map_err(|error| {
            EngineError::new(EngineCode::SandboxFailed, format!("signal: {error}"))
        })
    }
}
