//! A process that keeps a new user namespace reachable until the namespace is opened.
//!
//! It exits at once and is reaped only later: a dead process still has its namespace in `/proc`. It
//! shares this process's memory for its one system call, because a copy of the memory would cost
//! every thread of this process a page fault for each page that it writes afterwards.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// The process. It is reaped on drop.
#[derive(Debug)]
pub struct NamespaceHolder {
    pid: libc::pid_t,
}

impl NamespaceHolder {
    /// Starts it in a new user namespace without mapped ids.
    pub fn start() -> io::Result<Self> {
        // Without an exit signal, so that a host program that ignores SIGCHLD or waits for any child
        // does not reap it.
        let flags = libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_VFORK;
        // No signal handler may run in the child, which shares this process's memory.
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        // SAFETY: the flags hold CLONE_VM and CLONE_VFORK.
        let result = unsafe { clone_and_exit(u64::from(flags.unsigned_abs())) };
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        match libc::pid_t::try_from(result) {
            Ok(pid @ 1..) => Ok(Self { pid }),
            Ok(errno) => Err(io::Error::from_raw_os_error(-errno)),
            Err(_) => Err(Errno::EINVAL.into()),
        }
    }

    /// Its process id here.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

/// Clones a child that exits with status 0; returns its pid or the negative errno.
///
/// # Safety
/// `flags` must hold CLONE_VM and CLONE_VFORK.
unsafe fn clone_and_exit(flags: u64) -> i64 {
    let result: i64;
    // SAFETY: for the parent this is a plain system call. The child, which has the parent's stack
    // while the parent waits, touches no memory between its two system calls.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {exit_group}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            exit_group = const libc::SYS_exit_group,
            inlateout("rax") libc::SYS_clone => result,
            inlateout("rdi") flags => _,
            in("rsi") 0_u64, in("rdx") 0_u64, in("r10") 0_u64, in("r8") 0_u64,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as on x86-64.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x8, {exit_group}",
            "svc 0",
            "brk #1",
            "2:",
            exit_group = const libc::SYS_exit_group,
            inlateout("x8") libc::SYS_clone => _,
            inlateout("x0") flags => result,
            in("x1") 0_u64, in("x2") 0_u64, in("x3") 0_u64, in("x4") 0_u64,
            options(nostack),
        );
    }
    result
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        let reaped = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::__WALL));
        // ECHILD: a host program that waits for any child has reaped it.
        if let Err(errno) = reaped
            && errno != Errno::ECHILD
        {
            log::error!("reap the holder of a user namespace: {errno}");
        }
    }
}
