//! The steps that wait, report, and start the program.

use std::ffi::CString;

use crate::init::wire;
use crate::plan::encode::{EMPTY_PATH, Encoder};
use crate::plan::steps::process::{Rlimit, set_limit};

/// `F_WRLCK` as struct flock holds it.
const F_WRLCK: i16 = 1;

/// What a box is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecCommand {
    /// The descriptor that holds its file. One that has to be found by a path, as a script is by
    /// its interpreter, cannot be executed so.
    pub fd: Option<i32>,
    /// Where it may be otherwise: the first of them that can be executed.
    pub paths: Vec<CString>,
    /// Its arguments, its name the first.
    pub argv: Vec<CString>,
    /// Its environment.
    pub env: Vec<CString>,
}

/// A step that waits for another process, reports to the supervisor, or starts the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartStep {
    /// Do nothing more: somebody wants this process for its namespaces.
    WaitForKill,
    /// Lock the plan's file, whose content is mapped: a lock is this process's
    /// alone, and gone when it closes the file.
    HoldProgram,
    /// Wait until the init has closed the plan's file.
    AwaitGuard,
    /// Close the plan's file.
    ReleaseProgram,
    /// Tell the supervisor that all is made that can be made ahead.
    ReportPrepared,
    /// Wait to be let go, and take on the CPU seconds that come with it: the one limit that is
    /// known no sooner. Nobody being left to say so, the box ends.
    AwaitRelease,
    /// Tell the supervisor that only exec is left.
    ReportReady,
    /// Become the program if it can be executed; otherwise go on.
    TryExec(ExecCommand),
    /// Become the program.
    Exec(ExecCommand),
}

impl StartStep {
    /// The step's name in an error: the operation and its target.
    pub fn name(&self) -> String {
        match self {
            Self::WaitForKill => "wait".into(),
            Self::HoldProgram => "hold program".into(),
            Self::AwaitGuard => "await init".into(),
            Self::ReleaseProgram => "release program".into(),
            Self::ReportPrepared => "report standing".into(),
            Self::AwaitRelease => "await release".into(),
            Self::ReportReady => "report".into(),
            Self::TryExec(_) => "exec without a shell".into(),
            Self::Exec(_) => "exec".into(),
        }
    }

    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::WaitForKill => out.call(libc::SYS_ppoll, &[]),
            Self::HoldProgram => lock_plan(out, libc::F_SETLK),
            Self::AwaitGuard => lock_plan(out, libc::F_SETLKW),
            Self::ReleaseProgram => out.call(libc::SYS_close, &[wire::PLAN_FD.into()]),
            Self::ReportPrepared => out.report_prepared(),
            Self::AwaitRelease => await_release(out),
            Self::ReportReady => out.report_ready(),
            Self::TryExec(program) => exec(out, program, wire::IGNORE),
            Self::Exec(program) => exec(out, program, wire::TRY_NEXT),
        }
    }
}

/// The words are read to where the call after it looks for them.
fn await_release(out: &mut Encoder) {
    let words = out.words(&[0; wire::RELEASE_WORDS]);
    let bytes = wire::RELEASE_WORDS * size_of::<u64>();
    out.call(libc::SYS_read, &[wire::RELEASE_FD.into(), words, bytes.into()]);
    out.on_error(wire::WHOLE);
    set_limit(out, Rlimit::Cpu, words);
}

/// All of the file, for writing.
fn lock_plan(out: &mut Encoder, command: i32) {
    // struct flock: kind and whence in the first word, then start, length, owner.
    let mut lock = [0_u8; 32];
    lock[..2].copy_from_slice(&F_WRLCK.to_ne_bytes());
    let lock = out.bytes(&lock);
    out.call(libc::SYS_fcntl, &[wire::PLAN_FD.into(), command.into(), lock]);
}

fn exec(out: &mut Encoder, program: &ExecCommand, on_error: u16) {
    let argv = out.string_array(&program.argv);
    let env = out.string_array(&program.env);
    if let Some(fd) = program.fd {
        let empty = out.text(c"");
        out.call(libc::SYS_execveat, &[fd.into(), empty, argv, env, EMPTY_PATH.into()]);
        out.on_error(on_error);
    }
    for path in &program.paths {
        let path = out.text(path);
        out.call(libc::SYS_execve, &[path, argv, env]);
        out.on_error(on_error);
    }
}
