//! A builder for a task.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use cofferdam::executor::{Executor, FoundProgram, Room, RunInput, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{
    Limits, NotStarted, OutputSink, ProgramFile, RunReport, RunSpec, SetupFailure, StdinSource,
    Watch,
};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// One task with its environment, limits and files.
#[derive(Debug)]
pub struct TaskBuilder {
    argv: Vec<CString>,
    program: ProgramFile,
    env: Vec<CString>,
    limits: Limits,
    room: Room,
    files: Vec<(&'static str, usize)>,
    pub cancel: CancelToken,
}

/// The result of a task, and the files in its workspace if they were collected.
#[derive(Debug)]
pub struct Ran {
    pub report: Result<RunReport, NotStarted>,
    pub collected: Option<Vec<(String, u64)>>,
}

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap()
}

impl TaskBuilder {
    /// A task with these arguments, whose file is at `path` in the sandbox.
    pub fn at(path: &str, argv: &[&str]) -> Self {
        Self::of(ProgramFile::At(c_string(path)), argv)
    }

    /// A task with these arguments and an open file.
    pub fn open(found: FoundProgram, argv: &[&str]) -> Self {
        Self::of(ProgramFile::Open { file: found.file, at: c_string(&found.target) }, argv)
    }

    /// A shell script.
    pub fn sh(script: &str) -> Self {
        let task = Self::at("/bin/sh", &["sh", "-c", script]);
        Self { env: vec![c_string("PATH=/usr/bin:/bin")], ..task }
    }

    fn of(program: ProgramFile, argv: &[&str]) -> Self {
        Self {
            argv: argv.iter().map(|word| c_string(word)).collect(),
            program,
            env: Vec::new(),
            limits: Limits { output_bytes_max: None, ..Limits::default() },
            room: Room::default(),
            files: Vec::new(),
            cancel: CancelToken::new().unwrap(),
        }
    }

    /// Changes the limits.
    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// A wall-clock limit.
    pub fn wall_ms(self, millis: u64) -> Self {
        self.limits(|limits| limits.wall = Duration::from_millis(millis))
    }

    /// Adds a file of `bytes` bytes to the workspace, and room for it.
    pub fn file(mut self, name: &'static str, bytes: usize) -> Self {
        self.files.push((name, bytes));
        self.room.bytes += (bytes as u64).next_multiple_of(4096);
        self.room.inodes += 1;
        self
    }

    /// Executes the task. `look` gets the workspace and the host uid.
    pub fn execute(
        self,
        executor: &dyn Executor,
        sink: Option<Box<dyn OutputSink>>,
        look: &mut dyn FnMut(BorrowedFd<'_>, u32),
    ) -> Result<RunReport, NotStarted> {
        let spec = RunSpec {
            argv: self.argv,
            program: self.program,
            env: self.env,
            workdir: "/workspace".into(),
            stdin: StdinSource::Null,
            limits: self.limits,
            ..RunSpec::default()
        };
        let uid = std::cell::Cell::new(0);
        let mut fill = |workspace: BorrowedFd<'_>, owner: cofferdam_tree::Owner| {
            uid.set(owner.uid);
            for (name, bytes) in &self.files {
                write(workspace, name, *bytes, owner.uid);
            }
            Ok::<(), SetupFailure>(())
        };
        let mut collect = |workspace: BorrowedFd<'_>| look(workspace, uid.get());
        let room = self.room;
        let task = RunInput {
            spec,
            workspace: WorkspaceInput::Filled { room, fill: &mut fill, collect: &mut collect },
            retained: Default::default(),
        };
        executor.execute(task, &Watch::of(self.cancel), sink)
    }

    /// Executes the task and lists the files of its workspace.
    pub fn run(self, executor: &dyn Executor) -> Ran {
        let mut collected = None;
        let mut look = |workspace: BorrowedFd<'_>, _| collected = Some(list(workspace));
        let report = self.execute(executor, None, &mut look);
        Ran { report, collected }
    }
}

impl Ran {
    /// The output of a task that must have exited with code 0.
    #[track_caller]
    pub fn stdout(&self) -> String {
        crate::stdout_of(self.report.as_ref().unwrap())
    }

    /// The word for the outcome and the exit code of a shell for it.
    #[track_caller]
    pub fn ending(&self) -> (&'static str, Option<u8>) {
        crate::ending(self.report.as_ref().unwrap())
    }

    /// The errno of an exec that failed.
    #[track_caller]
    pub fn exec_errno(&self) -> i32 {
        match self.report {
            Err(NotStarted::Exec { errno }) => errno,
            ref other => panic!("{other:?}"),
        }
    }
}

/// The names in a directory and the sizes of their files.
pub fn list(directory: BorrowedFd<'_>) -> Vec<(String, u64)> {
    let path =
        PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory)));
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let mut listed: Vec<(String, u64)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    listed.sort();
    listed
}

fn write(directory: BorrowedFd<'_>, name: &str, bytes: usize, owner: u32) {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(directory.as_fd(), name, flags, Mode::from_bits_truncate(0o644)).unwrap();
    nix::unistd::fchown(&file, Some(owner.into()), Some(owner.into())).unwrap();
    File::from(file).write_all(&vec![b'x'; bytes]).unwrap();
}
