//! A bound on the file locks of a sandbox.
//!
//! The kernel keeps the locks of a file in one list, without a bound and outside of every memory
//! limit, and every close of the file walks over it: also a neighbour's and the host's, and that of
//! a process that is being killed. The filter of [`cofferdam_seccomp::locks`] reports each call that
//! may take a lock; here a call is let go on, or is refused with `ENOLCK`.
//!
//! `budget` decides (pure), `held` counts the locks that a sandbox really holds, `pace` bounds the
//! work that a sandbox may cause, `watch` is the thread that answers.

mod budget;
mod held;
mod rate_limit;
mod watch;

use std::thread;

use super::sys;
use cofferdam_seccomp::compile::CompileError;
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::locks;
pub use cofferdam_seccomp::locks::LockCalls;
pub use watch::LockWatch;

/// The filter for locks that the sandboxes of this host get.
#[derive(Debug, Clone)]
pub struct LockFilter {
    /// The compiled filter.
    pub filter: Filter,
    /// What it does with the calls.
    pub calls: LockCalls,
}

impl LockFilter {
    /// The filter that does so with the calls.
    pub fn new(calls: LockCalls) -> Result<Self, CompileError> {
        Ok(Self { filter: locks::filter(calls)?, calls })
    }

    /// The filter that asks the supervisor, or, where the kernel has no listeners or a filter
    /// around this process has one already, the filter that refuses every lock.
    pub fn for_this_host() -> Result<Self, CompileError> {
        let watching = Self::new(LockCalls::Watched)?;
        if can_listen(&watching.filter) {
            return Ok(watching);
        }
        log::warn!("this host has no seccomp listeners for sandboxes; they get no file locks");
        Self::new(LockCalls::Refused)
    }
}

/// Whether a filter with a listener can be installed. Only a filter around this process can stand
/// in the way; where there is one, it is tried in a thread made for that, as a filter stays.
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
