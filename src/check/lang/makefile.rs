//! What a workspace's `make test` would run, as the text that `sh -c` gets instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::make_process::{self, MakeLimits, MakeOutput, MakeProcessError};

/// Where the workspace is inside the box; `$(CURDIR)` is to say so.
const WORKSPACE_IN_BOX: &str = "/workspace";
/// The longest command, in bytes: the kernel takes no longer argument (128 KiB with its NUL).
const COMMAND_BYTES_MAX: usize = (128 << 10) - 1;
/// The longest line quoted from `make`, in characters.
const QUOTE_CHARS_MAX: usize = 300;
/// Variables by which an outer `make`, or the operator's shell, would change what is printed.
const MAKE_VARIABLES: [&str; 5] = ["MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES"];

/// Why a workspace has no command.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The directory is missing or cannot be looked into.
    #[error("no workspace at {}", .0.display())]
    NoWorkspace(PathBuf),
    /// None of the names `make` looks for.
    #[error("no Makefile in {}", .0.display())]
    NoMakefile(PathBuf),
    /// `make` itself: missing, too slow, too talkative.
    #[error(transparent)]
    Process(#[from] MakeProcessError),
    /// The Makefile is read and has no such target.
    #[error("the Makefile has no target `test`")]
    NoTarget,
    /// `make` refuses; its first line.
    #[error("make -n test: {0}")]
    Refused(String),
    /// The target is up to date, or its recipe is empty.
    #[error("nothing to be done for `test`: it must be .PHONY and have a recipe")]
    NothingToDo,
    /// The command is not UTF-8 or holds a NUL, and no argument can.
    #[error("the recipe of `test` is not text")]
    NotText,
}

/// How `make` is asked.
#[derive(Debug, Clone)]
pub struct Make {
    /// The program, looked up in PATH unless it holds a slash.
    pub program: PathBuf,
    /// What it may use. The command is its stdout.
    pub limits: MakeLimits,
}

impl Default for Make {
    fn default() -> Self {
        let limits =
            MakeLimits { time_max: Duration::from_secs(10), stdout_bytes_max: COMMAND_BYTES_MAX };
        Self { program: PathBuf::from("make"), limits }
    }
}

impl Make {
    /// The command that `make test` would run in `workspace`.
    pub fn resolve(&self, workspace: &Path) -> Result<String, ResolveError> {
        let mut command = Command::new(&self.program);
        command.args(["-n", "--no-print-directory", "test"]);
        command.arg(format!("CURDIR={WORKSPACE_IN_BOX}")).current_dir(workspace);
        for name in MAKE_VARIABLES {
            command.env_remove(name);
        }
        // What it says is looked into below.
        command.env("LC_ALL", "C");
        command_of(make_process::run(command, self.limits)?)
    }
}

/// Reads what `make -n test` wrote.
pub(super) fn command_of(output: MakeOutput) -> Result<String, ResolveError> {
    if !output.status.success() {
        return Err(refusal(&String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8(output.stdout).map_err(|_| ResolveError::NotText)?;
    // On stdout too: that nothing is to be done, and directories entered where
    // the Makefile asks for that. Run by a shell it would only be a 127.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    // By the line feed alone: a carriage return before it is the recipe's.
    let recipe: Vec<&str> = text.split('\n').filter(|line| !line.starts_with("make: ")).collect();
    if recipe.iter().all(|line| line.trim().is_empty()) {
        return Err(ResolveError::NothingToDo);
    }
    let command = recipe.join("\n");
    if command.contains('\0') { Err(ResolveError::NotText) } else { Ok(command) }
}

fn refusal(message: &str) -> ResolveError {
    let first_line = message.lines().next().unwrap_or("it failed without a word").trim_end();
    // A prerequisite without a rule reads the same up to ", needed by".
    if first_line.contains("No rule to make target 'test'. ") {
        return ResolveError::NoTarget;
    }
    ResolveError::Refused(first_line.chars().take(QUOTE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests;
