//! Programs of workspaces: run to their end, or started to talk with.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::sessions::ProgramSession;
use super::workspace::Workspace;
use crate::workspace::{EngineError, LimitsRequest, ProgramReport};

/// A program to run in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunProgramSpec {
    /// The program: a name that `PATH` finds, or a path.
    pub cmd: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables, which win over those of the workspace.
    pub env: BTreeMap<String, String>,
    /// Its working directory, made if missing; empty for the workspace.
    pub cwd: String,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// The skill that it belongs to, `SKILL_NAME` of the program; empty for none.
    pub skill: String,
    /// The longest time that it may run, counted in whole milliseconds from exec; zero for the default.
    pub timeout: Duration,
    /// Its limits. What is absent or 0 is as in the workspace.
    pub limits: LimitsRequest,
}

/// A program to start in a workspace and talk with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InteractiveProgramSpec {
    /// The program. Its standard input stays open after `stdin`.
    pub program: RunProgramSpec,
    /// Whether it gets a terminal, which is one stream.
    pub tty: bool,
    /// The width of the terminal, characters; 0 for 80.
    pub cols: u16,
    /// The height of the terminal, lines; 0 for 24.
    pub rows: u16,
}

impl RunProgramSpec {
    /// Runs `cmd` without arguments.
    pub fn new(cmd: impl Into<String>) -> Self {
        Self { cmd: cmd.into(), ..Self::default() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets the longest time that it may run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts it to talk with, without a terminal.
    pub fn interactive(self) -> InteractiveProgramSpec {
        InteractiveProgramSpec { program: self, ..InteractiveProgramSpec::default() }
    }

    /// Starts it to talk with, at a terminal of 80 columns and 24 lines.
    pub fn on_terminal(self) -> InteractiveProgramSpec {
        InteractiveProgramSpec { tty: true, ..self.interactive() }
    }
}

/// Runs programs in workspaces.
pub trait ProgramRunner: Debug + Send + Sync {
    /// Runs a program to its end on this thread. A failure, a time-out and a program that cannot be
    /// executed are results, the last with the exit code -1 and an `error`.
    ///
    /// # Errors
    /// A value of `spec` is wrong, there is no such workspace or no sandbox for it, or a limit is reached.
    fn run_program(
        &self,
        workspace: &Workspace,
        spec: RunProgramSpec,
    ) -> Result<ProgramReport, EngineError>;

    /// Itself, if it can also start programs to talk with.
    fn interactive(&self) -> Option<&dyn InteractiveProgramRunner> {
        None
    }
}

/// Starts programs that go on while their caller does other things.
pub trait InteractiveProgramRunner: Debug + Send + Sync {
    /// Starts a program.
    ///
    /// # Errors
    /// As [`ProgramRunner::run_program`], or the program cannot be executed.
    fn start_program(
        &self,
        workspace: &Workspace,
        spec: InteractiveProgramSpec,
    ) -> Result<Arc<dyn ProgramSession>, EngineError>;
}
