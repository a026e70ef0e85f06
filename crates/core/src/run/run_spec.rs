//! What to run.

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
    /// Whatever this descriptor yields, copied as it comes; the program never
    /// holds the descriptor itself.
    Copied(OwnedFd),
}

/// A file or directory of the host shown inside the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The absolute path on the host.
    pub source: PathBuf,
    /// The absolute path inside.
    pub target: PathBuf,
    /// Whether the box may not write to it.
    pub read_only: bool,
}

/// An extra private tmpfs inside the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmpfs {
    /// The absolute path inside.
    pub target: PathBuf,
    /// Its size; the box's disk figure where none is given.
    pub bytes_max: Option<u64>,
}

/// How `/workspace` is filled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WorkspaceFill {
    /// From what was written into the box's own file system before the start.
    #[default]
    Own,
    /// From this directory, read-only below, with the box's own file system above.
    Overlay {
        /// The template on the host.
        template: PathBuf,
    },
}

/// Which file is executed.
#[derive(Debug, Default)]
pub enum ProgramFile {
    /// The one that the first of the arguments names: looked up in the box's PATH unless it holds
    /// a slash.
    #[default]
    Named,
    /// The one at this absolute path in the box, whatever the arguments begin with.
    At(CString),
    /// This very file, which the box then has there, whatever else has come to be at that path.
    Open {
        /// The file, open for reading.
        file: OwnedFd,
        /// Where it is in the box: absolute, links resolved.
        at: CString,
    },
}

/// One program to run in a box.
#[derive(Debug)]
pub struct RunSpec {
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// Which file that is.
    pub program: ProgramFile,
    /// What is executed in its place if it can be: the words of a plain command that `argv`
    /// has a shell for, without the shell.
    pub without_shell: Option<Vec<CString>>,
    /// The whole environment, `KEY=VALUE`, in the order given.
    pub env: Vec<CString>,
    /// The working directory, absolute, inside the box.
    pub workdir: PathBuf,
    /// Standard input.
    pub stdin: StdinSource,
    /// The bounds.
    pub limits: Limits,
    /// How `/workspace` is filled.
    pub workspace: WorkspaceFill,
    /// Host paths to show inside.
    pub binds: Vec<Bind>,
    /// Extra private file systems.
    pub tmpfs: Vec<Tmpfs>,
}
