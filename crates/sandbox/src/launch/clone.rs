//! A vfork-like clone: the child shares this thread's memory and stack until it execs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow};

use super::child::{self, ChildStart};
use crate::launch::process::InitProcess;

/// `struct clone_args` up to `cgroup`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_PIDFD: u64 = 0x1000;

/// Clones a child into the new namespaces `namespaces`, and into `cgroup` if one is given. The
/// child runs [`child::start`]. The calling thread is suspended until the child execs or ends, so
/// what `start` refers to stays valid, and the address space is never copied.
pub fn clone_vfork(
    namespaces: i32,
    cgroup: Option<BorrowedFd<'_>>,
    start: &ChildStart<'_>,
) -> io::Result<InitProcess> {
    let mut pidfd: i32 = -1;
    let namespaces = u64::from(namespaces.unsigned_abs());
    let flags =
        namespaces | u64::from((libc::CLONE_VM | libc::CLONE_VFORK).unsigned_abs()) | CLONE_PIDFD;
    let mut args = CloneArgs { flags, pidfd: &raw mut pidfd as u64, ..CloneArgs::default() };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    // No signal handler may run in the child, which shares this process's memory.
    let mut before = SigSet::empty();
    nix::sys::signal::pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: `args` is a whole clone_args without a stack, as vfork_call wants it, and `start`
    // outlives the child's use of it because CLONE_VFORK suspends this thread.
    let mut result = unsafe {
        vfork_call(
            libc::SYS_clone3,
            &raw const args as u64,
            size_of::<CloneArgs>() as u64,
            0,
            start,
        )
    };
    if result == -i64::from(libc::ENOSYS) {
        // Container engines answer ENOSYS to clone3, whose flags their filters cannot read. The
        // child then moves into its group itself. That takes longer, and is as safe: it is in the
        // group before it execs.
        let join = cgroup.map(|group| group.as_raw_fd());
        let start = ChildStart { join, ..*start };
        // SAFETY: as above; clone takes flags, no stack, and where the pidfd goes.
        result = unsafe { vfork_call(libc::SYS_clone, flags, 0, &raw mut pidfd as u64, &start) };
    }
    nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    let Ok(pid @ 1..) = i32::try_from(result) else {
        let errno = i32::try_from(-result).unwrap_or(libc::EINVAL);
        return Err(io::Error::from_raw_os_error(errno));
    };
    // SAFETY: the call succeeded with CLONE_PIDFD, so `pidfd` is a new descriptor that nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(InitProcess::new(pid, pidfd))
}

/// Makes the system call. The child continues in [`enter_child`] and never returns to the frame
/// that both share.
///
/// # Safety
/// `number` must be clone or clone3 with CLONE_VM | CLONE_VFORK and no stack, and `a`, `b` and `c`
/// its first arguments.
unsafe fn vfork_call(number: i64, a: u64, b: u64, c: u64, start: &ChildStart<'_>) -> i64 {
    let result: i64;
    // SAFETY: for the parent this is a plain system call. The child runs on the same stack, below
    // the current frame (no red zone: `nostack` is not given), and never returns into it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r9",
            "call {enter}",
            "ud2",
            "2:",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") 0_u64, in("r8") 0_u64,
            in("r9") start,
            enter = sym enter_child,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    // SAFETY: as on x86-64.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, x9",
            "bl {enter}",
            "brk #1",
            "2:",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") 0_u64, in("x4") 0_u64,
            in("x9") start,
            enter = sym enter_child,
            lateout("x30") _,
        );
    }
    result
}

extern "C" fn enter_child(start: &ChildStart<'_>) -> ! {
    child::start(start)
}
