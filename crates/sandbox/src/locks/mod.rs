//! A limit on the file locks of a sandbox.
//!
//! The kernel keeps the locks of a file in one list, without a limit and outside of every memory
//! limit. Every close of the file walks this list: closes by neighbours, by the host, and by a
//! process that is being killed. The filter of [`cofferdam_seccomp::locks`] reports each call that
//! may take a lock; this module lets the call continue or refuses it with `ENOLCK`.
//!
//! `budget` decides (pure), `held` counts the locks that a sandbox holds, `rate_limit` limits the
//! work that a sandbox causes, `watch` is the thread that answers.

mod budget;
mod held;
mod rate_limit;
mod watch;

use std::thread;

use super::sys;
use cofferdam_seccomp::filter::{Filter, Instruction};
pub use cofferdam_seccomp::locks::LockCalls;
pub use watch::{LockWatch, allow_call, receive_listener};

// Compiled by the build script, as the builtin profiles are.
include!(concat!(env!("OUT_DIR"), "/locks.rs"));

/// The lock filter of the sandboxes on this host.
#[derive(Debug, Clone)]
pub struct LockFilter {
    /// The compiled filter.
    pub filter: Filter,
    /// How it treats the calls.
    pub calls: LockCalls,
}

impl LockFilter {
    /// The filter that treats the calls as `calls` says.
    pub fn new(calls: LockCalls) -> Self {
        let program = match calls {
            LockCalls::Watched => WATCHED,
            LockCalls::Refused => REFUSED,
        };
        Self { filter: Filter { name: "locks".to_owned(), program: program.to_vec() }, calls }
    }

    /// The filter that asks the supervisor. If the kernel has no listeners, or a filter around this
    /// process has one already, the filter that refuses every lock.
    pub fn for_this_host() -> Self {
        let watching = Self::new(LockCalls::Watched);
        if can_listen(&watching.filter) {
            return watching;
        }
        log::warn!("this host has no seccomp listeners for sandboxes; they get no file locks");
        Self::new(LockCalls::Refused)
    }
}

/// Whether a filter with a listener can be installed. Only a filter around this process can prevent
/// it. With such a filter, this is tried in a new thread, as a filter cannot be removed.
fn can_listen(filter: &Filter) -> bool {
    if !sys::has_listeners() {
        return false;
    }
    if !sys::is_filtered() {
        return true;
    }
    let program = filter.bytes();
    let named = thread::Builder::new().name("try-listener".to_owned());
    let tried = named.spawn(move || sys::listen_in_this_thread(&program).is_ok());
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_seccomp::locks;
    use cofferdam_seccomp::syscalls::Arch;

    #[test]
    fn the_built_filters_equal_those_compiled_now() {
        for calls in [LockCalls::Watched, LockCalls::Refused] {
            let compiled_now = locks::filter(calls, Arch::NATIVE).unwrap();
            assert_eq!(LockFilter::new(calls).filter, compiled_now);
        }
    }
}
