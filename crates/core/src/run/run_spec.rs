//! The program to run, and its surroundings.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::limits::Limits;

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WorkspaceFill {
    /// With the files written into the sandbox's own file system before the start.
    #[default]
    Own,
    /// With an overlay: this directory read-only below, the sandbox's own file system above.
    Overlay {
        /// The template on the host.
        template: PathBuf,
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

/// One program to run in a sandbox.
#[derive(Debug)]
pub struct RunSpec {
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// The file that is executed.
    pub program: ProgramFile,
    /// The command without its shell, if `argv` runs a plain command in a shell. It is executed
    /// instead of `argv` where possible.
    pub without_shell: Option<Vec<CString>>,
    /// The whole environment, `KEY=VALUE`, in the order given.
    pub env: Vec<CString>,
    /// The working directory, absolute, inside the sandbox.
    pub workdir: PathBuf,
    /// Standard input.
    pub stdin: StdinSource,
    /// The limits.
    pub limits: Limits,
    /// How `/workspace` is filled.
    pub workspace: WorkspaceFill,
    /// Host paths that are visible in the sandbox.
    pub binds: Vec<Bind>,
    /// Extra private file systems.
    pub tmpfs: Vec<Tmpfs>,
}
