//! What the cloned child does before it execs the init. AFTER CLONE: it shares the parent's memory,
//! so it must not allocate, lock, log, unwind or return.

use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::init::wire::{FAILED, RECORD_BYTES, STATUS_FD, StatusRecord};

/// The most descriptors that a sandbox can be given.
pub const DESCRIPTORS_MAX: usize = 128;

/// What the child needs, prepared by the parent.
#[derive(Debug)]
pub struct ChildStart<'a> {
    /// Descriptor n of the sandbox is a copy of `descriptors[n]`.
    pub descriptors: &'a [RawFd],
    /// The init's program file.
    pub init: RawFd,
    /// The version 2 group that it moves itself into, if it was not cloned there.
    pub join: Option<RawFd>,
}

/// The index of the status pipe in the descriptors.
const STATUS: usize = STATUS_FD.unsigned_abs() as usize;

/// `StatusRecord::step` of a failure before the init reads its plan.
pub const STEP_START_INIT: u32 = u32::MAX;

/// Puts its descriptors in place, closes all others, and execs the init.
pub fn start(start: &ChildStart<'_>) -> ! {
    // Until the pipe is at the number that the init expects, that number is a file of the parent's.
    let mut status = start.descriptors.get(STATUS).copied().unwrap_or(-1);
    if let Err(errno) = become_init(start, &mut status) {
        let record = StatusRecord {
            kind: FAILED,
            step: STEP_START_INIT,
            value: errno,
            reserved: 0,
            monotonic_ns: 0,
        };
        // SAFETY: the record is a live local of the length given.
        unsafe { libc::write(status, (&raw const record).cast(), RECORD_BYTES) };
    }
    // SAFETY: _exit takes a plain integer and runs none of the parent's handlers.
    unsafe { libc::_exit(1) }
}

/// Returns only on failure, with the errno. `status` always holds the current number of the status
/// pipe.
fn become_init(start: &ChildStart<'_>, status: &mut RawFd) -> Result<(), i32> {
    // SAFETY: integers only. Exec keeps this setting.
    call(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    if let Some(group) = start.join {
        join(group)?;
    }
    let count = i32::try_from(start.descriptors.len()).map_err(|_| libc::EMFILE)?;
    // First move them out of the way: a source may have the number that another copy needs.
    let mut moved = [0; DESCRIPTORS_MAX];
    for (to, from) in moved.iter_mut().zip(start.descriptors) {
        // SAFETY: integers only; the parent keeps the source open until we exec.
        *to = call(unsafe { libc::fcntl(*from, libc::F_DUPFD, count) })?;
    }
    *status = moved.get(STATUS).copied().unwrap_or(-1);
    // SAFETY: as above.
    let init = call(unsafe { libc::fcntl(start.init, libc::F_DUPFD, count) })?;
    for (target, from) in (0..count).zip(moved) {
        // SAFETY: integers only; no descriptor below `count` is in use any more.
        call(unsafe { libc::dup2(from, target) })?;
    }
    // Exec closes everything else: inherited descriptors, those of other runs, the copies above.
    // SAFETY: integers only.
    let closed = unsafe {
        libc::syscall(libc::SYS_close_range, count, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    call(if closed < 0 { -1 } else { 0 })?;
    let argv: [*const libc::c_char; 2] = [c"cofferdam-init".as_ptr(), std::ptr::null()];
    let env: [*const libc::c_char; 1] = [std::ptr::null()];
    let no_path: &CStr = c"";
    // SAFETY: both arrays end in NULL, their texts in NUL, and all live until exec.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            init,
            no_path.as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    Err(errno())
}

/// Moves this single-threaded process into the group of the directory `group`.
fn join(group: RawFd) -> Result<(), i32> {
    let (processes, ourselves) = (c"cgroup.procs", b"0");
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the name ends in NUL; exec closes what is opened.
    let file = call(unsafe { libc::openat(group, processes.as_ptr(), flags) })?;
    // SAFETY: reads the one byte of the text.
    let written = unsafe { libc::write(file, ourselves.as_ptr().cast(), ourselves.len()) };
    call(if written == 1 { 0 } else { -1 })?;
    Ok(())
}

fn call(result: i32) -> Result<i32, i32> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn errno() -> i32 {
    // SAFETY: in glibc and musl, errno is a readable word of this thread, which the child shares.
    unsafe { *libc::__errno_location() }
}
