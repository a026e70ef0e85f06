//! Nothing allocates memory between clone and exec.
//!
//! The allocator of this test binary ends every process except the one that armed it. The child of a
//! sandbox shares the memory of this process: without the check an allocation there would go
//! unnoticed, and sometimes block on a heap lock whose owner does not exist in the child.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use cofferdam_core::{NotStarted, StdinSource};
use cofferdam_test_support::{self as support, MIB, Program, ending, lines_of};

/// The exit code of a process that allocates although it may not.
const TRAPPED: i32 = 93;

/// The system allocator, for one process only.
struct OneProcess {
    /// The process that may allocate, or zero to allow all.
    armed_in: AtomicI32,
}

#[global_allocator]
static ALLOCATOR: OneProcess = OneProcess { armed_in: AtomicI32::new(0) };

impl OneProcess {
    fn arm(&self) {
        self.armed_in.store(own_pid(), Ordering::SeqCst);
    }

    fn check(&self) {
        let armed_in = self.armed_in.load(Ordering::SeqCst);
        if armed_in != 0 && armed_in != own_pid() {
            // SAFETY: takes an integer and runs no code of this process.
            unsafe { libc::_exit(TRAPPED) };
        }
    }
}

/// Asks the kernel each time, because a C library may cache the pid across a clone.
fn own_pid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    let pid = unsafe { libc::syscall(libc::SYS_getpid) };
    i32::try_from(pid).unwrap_or(-1)
}

// SAFETY: every call is passed unchanged to the system allocator, or does not return.
unsafe impl GlobalAlloc for OneProcess {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.check();
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.check();
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        self.check();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

/// Forks a child that runs `body` and exits with 0, and returns how it ended.
fn fork_to(body: impl FnOnce()) -> ExitStatus {
    // SAFETY: the child only runs `body`, which each caller keeps free of locks.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        body();
        // SAFETY: as in `check`.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live local, and only this function waits for `pid`.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    ExitStatus::from_raw(status)
}

#[test]
fn the_guard_traps_a_child_that_allocates_or_frees() {
    ALLOCATOR.arm();
    let mine = Box::new(1);
    assert_eq!(fork_to(|| drop(std::hint::black_box(Box::new(2)))).code(), Some(TRAPPED));
    assert_eq!(fork_to(|| drop(mine)).code(), Some(TRAPPED));
    let mut text = String::from("a");
    assert_eq!(fork_to(|| text.push_str("longer than it was")).code(), Some(TRAPPED));
    assert_eq!(fork_to(|| {}).code(), Some(0), "a child that does neither is not trapped");
}

#[test]
fn no_child_allocates_for_any_kind_of_sandbox() {
    ALLOCATOR.arm();
    let Some(host) = support::host() else { return };
    let template = tempfile::tempdir().unwrap();
    (0..50).for_each(|n| std::fs::write(template.path().join(format!("{n}")), "x").unwrap());

    let rich = Program::sh(
        "cat; ls /workspace | wc -l; df /scratch | wc -l; test -d /shown && echo shown",
    )
    .stdin(StdinSource::Bytes(b"fed\n".to_vec()))
    .template(template.path())
    .bind("/usr/share".as_ref(), "/shown", true)
    .bind(template.path(), "/written", false)
    .tmpfs("/scratch", Some(MIB));
    assert_eq!(lines_of(&host.run(rich)), ["fed", "50", "2", "shown"]);

    let late = Program::sh("sleep 60").limits(|limits| limits.wall = Duration::from_millis(50));
    assert_eq!(ending(&host.run(late)), ("timed_out", None));
    let flood = Program::sh("yes").limits(|limits| limits.output_bytes_max = Some(1000));
    assert_eq!(ending(&host.run(flood)), ("output_limit", None));
    // Failures before exec are reported by the same child.
    let missing = host.try_run(Program::new(&["/absent"])).unwrap_err();
    assert_eq!(missing, NotStarted::Exec { errno: libc::ENOENT });
    assert!(host.try_run(Program::sh("").workdir("/absent")).is_err());
}

#[test]
fn no_child_allocates_when_many_threads_create_sandboxes() {
    ALLOCATOR.arm();
    let Some(host) = support::host() else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(lines_of(&host.run(Program::sh("echo well"))), ["well"]);
                }
            });
        }
    });
}
