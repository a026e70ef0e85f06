//! The steps that wait, report, and start the program.

use std::ffi::CString;

use crate::init::wire;
use crate::plan::encode::{Arg, EMPTY_PATH, Encoder};
use crate::plan::sent_program::{self, AREA_BYTES};
use crate::plan::steps::process::{Rlimit, set_limit};

/// `F_WRLCK` as struct flock holds it.
const F_WRLCK: i16 = 1;

/// The program that a sandbox executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecTarget {
    /// The descriptor of its file. A script cannot be executed through it, since its interpreter
    /// needs a path.
    pub fd: Option<i32>,
    /// The paths to try otherwise: the first that can be executed counts.
    pub paths: Vec<CString>,
    /// Its arguments, the first is its name.
    pub argv: Vec<CString>,
    /// Its environment.
    pub env: Vec<CString>,
}

/// A step that waits for another process, reports to the supervisor, or executes the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartStep {
    /// Wait to be killed.
    WaitForKill,
    /// Lock the plan's file, whose content is mapped. The lock belongs to this process alone, and
    /// ends when it closes the file.
    HoldProgram,
    /// Wait until the init has closed the plan's file.
    AwaitGuard,
    /// Close the plan's file.
    ReleaseProgram,
    /// Report to the supervisor that the sandbox is prepared.
    ReportPrepared,
    /// Wait until the supervisor resumes the program, and set the limit of CPU seconds that it sends:
    /// no other limit is known only then. If the supervisor is gone, the sandbox ends.
    AwaitRelease,
    /// As [`StartStep::AwaitRelease`], and take the program that the supervisor sends.
    AwaitProgram,
    /// Enter the working directory that was sent.
    EnterSentDirectory,
    /// Report to the supervisor that exec is next.
    ReportReady,
    /// Execute the program; continue if that fails.
    TryExec(ExecTarget),
    /// Execute the program.
    Exec(ExecTarget),
    /// Execute the program that was sent.
    ExecSent,
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
            Self::AwaitRelease | Self::AwaitProgram => "await release".into(),
            Self::EnterSentDirectory => "workdir".into(),
            Self::ReportReady => "report".into(),
            Self::TryExec(_) => "exec without a shell".into(),
            Self::Exec(_) | Self::ExecSent => "exec".into(),
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
            Self::AwaitRelease => {
                let words = out.words(&[0; wire::RELEASE_WORDS]);
                await_release(out, words, wire::RELEASE_WORDS * size_of::<u64>());
            }
            Self::AwaitProgram => await_release(out, sent_program::area(), AREA_BYTES),
            Self::EnterSentDirectory => out.call(libc::SYS_chdir, &[sent_program::workdir()]),
            Self::ReportReady => out.report_ready(),
            Self::TryExec(program) => exec(out, program, wire::IGNORE),
            Self::Exec(program) => exec(out, program, wire::TRY_NEXT),
            Self::ExecSent => exec_sent(out),
        }
    }
}

/// Reads what is sent to the address `to`, from which the next call takes the limits.
fn await_release(out: &mut Encoder, to: Arg, bytes: usize) {
    out.call(libc::SYS_read, &[wire::RELEASE_FD.into(), to, bytes.into()]);
    out.on_error(wire::WHOLE);
    set_limit(out, Rlimit::Cpu, to);
}

fn exec_sent(out: &mut Encoder) {
    let [argv, env] = sent_program::pointers();
    for path in sent_program::paths() {
        out.call(libc::SYS_execve, &[path, argv, env]);
        out.on_error(wire::TRY_NEXT);
    }
}

/// Locks the whole file for writing.
fn lock_plan(out: &mut Encoder, command: i32) {
    // struct flock: kind and whence in the first word, then start, length, owner.
    let mut lock = [0_u8; 32];
    lock[..2].copy_from_slice(&F_WRLCK.to_ne_bytes());
    let lock = out.bytes(&lock);
    out.call(libc::SYS_fcntl, &[wire::PLAN_FD.into(), command.into(), lock]);
}

fn exec(out: &mut Encoder, program: &ExecTarget, on_error: u16) {
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
