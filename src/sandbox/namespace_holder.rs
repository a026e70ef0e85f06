//! A process that only keeps a new user namespace alive while the namespace is opened.
//!
//! It is a plain copy of this process that waits for the end of a pipe. A sandbox's init would do,
//! but to prepare and execute one takes five times as long, which a single `exec` would wait for.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, pipe2};

/// The process. Dropped, it ends and is reaped. It ends with this process too.
#[derive(Debug)]
pub struct NamespaceHolder {
    pid: libc::pid_t,
    /// The last descriptor of the pipe's writing end: closing it ends the process.
    writer: Option<OwnedFd>,
}

impl NamespaceHolder {
    /// Starts one in a new user namespace without mapped ids.
    pub fn start() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        // No handler of ours may run in the child: what it writes to is shared.
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        let flags = libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
        // SAFETY: without CLONE_VM and a stack this is a fork: the child has a copy of everything
        // and goes on here, where it makes nothing but system calls.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_u64, 0_u64, 0_u64, 0_u64) };
        if pid == 0 {
            wait_for_end_of(reader.as_raw_fd(), writer.as_raw_fd());
        }
        let failed = io::Error::last_os_error();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        match libc::pid_t::try_from(pid) {
            Ok(pid) if pid > 0 => Ok(Self { pid, writer: Some(writer) }),
            _ => Err(failed),
        }
    }

    /// Its process id here.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

/// What the child does. Only async-signal-safe work: other threads had locks when it was copied.
fn wait_for_end_of(reader: i32, writer: i32) -> ! {
    let mut byte = 0_u8;
    // SAFETY: the descriptors are the child's own copies, and `byte` is a live local.
    unsafe {
        libc::close(writer);
        while libc::read(reader, (&raw mut byte).cast(), 1) < 0 && Errno::last_raw() == libc::EINTR
        {
        }
        libc::_exit(0)
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        drop(self.writer.take());
        let reaped = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::__WALL));
        // ECHILD: a host program that reaps any child of its process was sooner.
        if let Err(errno) = reaped
            && errno != Errno::ECHILD
        {
            log::error!("reap the holder of a user namespace: {errno}");
        }
    }
}
