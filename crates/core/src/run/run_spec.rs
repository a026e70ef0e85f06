//! The program to run, and its surroundings.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::egress::EgressService;
use super::limits::Limits;
use super::mounted::MountedWorkspace;
use crate::sync::input_queue::InputQueue;
use crate::sync::run_control::TerminalSize;

/// Where the program's standard input comes from.
#[derive(Debug, Default)]
pub enum StdinSource {
    /// `/dev/null`.
    #[default]
    Null,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
    /// The data read from this descriptor, copied as it arrives. The program never gets the
    /// descriptor itself.
    Copied(OwnedFd),
    /// What other threads write into this queue while the program runs.
    Queue(Arc<InputQueue>),
    /// This descriptor itself: the reading end of a pipe whose other end ends the input by closing.
    Given(OwnedFd),
}

/// A file or directory of the host that is visible in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The absolute path on the host.
    pub source: PathBuf,
    /// The absolute path inside.
    pub target: PathBuf,
    /// Whether the sandbox cannot write to it.
    pub read_only: bool,
}

/// An extra private tmpfs in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmpfs {
    /// The absolute path inside.
    pub target: PathBuf,
    /// Its size in bytes; the disk limit of the sandbox if `None`.
    pub bytes_max: Option<u64>,
}

/// How `/workspace` is filled.
#[derive(Debug, Default)]
pub enum WorkspaceFill {
    /// With the files written into the sandbox's own file system before the start.
    #[default]
    Own,
    /// With an overlay: this directory read-only below, the sandbox's own file system above.
    Overlay {
        /// The template on the host.
        template: PathBuf,
    },
    /// Not at all: it is a file system of its own, which the sandbox shows.
    Mounted(MountedWorkspace),
}

/// What becomes of output beyond its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExcessOutput {
    /// It ends the run, at the `output_bytes_max` of the limits.
    #[default]
    Kills,
    /// It is counted and dropped. These limits apply instead of that of the limits.
    Dropped {
        /// Bytes of stdout that are kept.
        stdout_bytes_max: u64,
        /// Bytes of stderr that are kept.
        stderr_bytes_max: u64,
    },
}

/// The file that is executed.
#[derive(Debug, Default)]
pub enum ProgramFile {
    /// The file that the first argument names. It is searched in the sandbox's PATH unless it
    /// contains a slash.
    #[default]
    Named,
    /// The file at this absolute path in the sandbox, whatever the first argument is.
    At(CString),
    /// This open file. The sandbox sees it at `at`, even if another file has replaced it there
    /// meanwhile.
    Open {
        /// The file, open for reading.
        file: OwnedFd,
        /// Its path in the sandbox: absolute, links resolved.
        at: CString,
    },
}

/// A program that may be executed ahead of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prestart {
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// What it is counted as in metrics: the language.
    pub label: String,
}

/// One program to run in a sandbox.
#[derive(Debug, Default)]
pub struct RunSpec {
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// The file that is executed.
    pub program: ProgramFile,
    /// The command without its shell, if `argv` runs a plain command in a shell. It is executed
    /// instead of `argv` where possible.
    pub without_shell: Option<Vec<CString>>,
    /// The program that a backend may execute instead, ahead of the run: it brings its runtime up,
    /// reports that it is ready, and goes on as `argv` would once its input ends.
    pub prestart: Option<Prestart>,
    /// The whole environment, `KEY=VALUE`, in the order given.
    pub env: Vec<CString>,
    /// The working directory, absolute, inside the sandbox.
    pub workdir: PathBuf,
    /// Standard input.
    pub stdin: StdinSource,
    /// The limits.
    pub limits: Limits,
    /// What becomes of output beyond its limit.
    pub excess_output: ExcessOutput,
    /// The size of the controlling terminal, if the program gets one: it is then standard input,
    /// output and error, and all output comes as stdout.
    pub terminal: Option<TerminalSize>,
    /// How `/workspace` is filled.
    pub workspace: WorkspaceFill,
    /// Host paths that are visible in the sandbox.
    pub binds: Vec<Bind>,
    /// Extra private file systems.
    pub tmpfs: Vec<Tmpfs>,
    /// What the sandbox may reach, if anything.
    pub egress: Option<Arc<dyn EgressService>>,
}
