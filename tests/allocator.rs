//! Nothing allocates between clone and exec: a cloned child that tried would never become a box.
//!
//! The allocator of this whole test binary ends any process but the one it was armed in. A box's
//! child shares the memory of this process, so an allocation there would otherwise pass unseen,
//! and now and then find the heap's lock held by a thread that the child does not have.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use cofferdam_core::{NotStarted, StdinSource};
use cofferdam_test_support::{self as support, MIB, Program, ending, lines_of};

/// The exit code of a process that allocated where it may not.
const TRAPPED: i32 = 93;

/// The system's allocator, for one process only.
struct OneProcess {
    /// The process that may allocate; zero while every one may.
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
            // SAFETY: takes an integer and runs nothing of this process's.
            unsafe { libc::_exit(TRAPPED) };
        }
    }
}

/// From the kernel each time: a C library might remember it across a clone.
fn own_pid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    let pid = unsafe { libc::syscall(libc::SYS_getpid) };
    i32::try_from(pid).unwrap_or(-1)
}

// SAFETY: every call is passed on to the system's allocator as it came, or does not return.
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

/// How a forked child that does `body`, then exits with 0, ends.
fn fork_to(body: impl FnOnce()) -> ExitStatus {
    // SAFETY: the child does nothing but `body`, which each caller keeps free of locks.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        body();
        // SAFETY: as in `check`.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live local, `pid` a child that nobody else waits for.
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
    assert_eq!(fork_to(|| {}).code(), Some(0), "a child that does neither goes free");
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
    // Failures on the way to exec are told from the same child.
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
