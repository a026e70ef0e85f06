//! The thread that answers the reported calls of one sandbox: calls for locks and sockets.
//!
//! The first call starts it: a program without locks needs no thread. A tenant that keeps the
//! thread busy delays only its own calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::budget::{LockBudget, LockCall, LockDecision};
use super::held;
use super::rate_limit::CallRateLimit;
use crate::sys;
use cofferdam_core::sync::cancel::CancelToken;

/// The listener of a sandbox, until the thread takes it.
#[derive(Debug)]
pub struct LockWatch<'socket> {
    /// The socket that delivers the listener, until it has.
    socket: Option<BorrowedFd<'socket>>,
    listener: Option<OwnedFd>,
    /// Whether the listener was received and no call was reported on it.
    unused: bool,
    /// The uid and gid of the program, whose locks are counted.
    tenant: Option<u32>,
}

impl<'socket> LockWatch<'socket> {
    /// Expects the listener on `socket`, if one comes.
    pub fn new(socket: Option<BorrowedFd<'socket>>, tenant: Option<u32>) -> Self {
        Self { socket, listener: None, unused: false, tenant }
    }

    /// For a listener that was received already.
    pub fn of(listener: Option<OwnedFd>, tenant: u32) -> Self {
        Self { socket: None, listener, unused: false, tenant: Some(tenant) }
    }

    /// For a listener that was received already; `unused` if no call was reported on it.
    pub fn received(listener: OwnedFd, unused: bool, tenant: Option<u32>) -> Self {
        Self { socket: None, listener: Some(listener), unused, tenant }
    }

    /// Receives the listener once the program has begun; the init sends it before.
    pub fn program_began(&mut self) -> io::Result<()> {
        if let Some(socket) = self.socket.take() {
            self.listener = Some(receive_listener(socket)?);
            self.unused = true;
        }
        Ok(())
    }

    /// The listener, which becomes readable with the first call.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Whether the program has started and has made none of the reported calls. The kernel executes
    /// such a call only after the supervisor answers.
    pub fn is_unused(&self) -> bool {
        self.unused
    }

    /// Drops the listener: no process is left that could call.
    pub fn end(&mut self) {
        self.listener = None;
    }

    /// Starts the thread. It ends when `dead` is set or the last process has ended.
    pub fn start<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        dead: &'env CancelToken,
    ) -> io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        self.unused = false;
        let (tenant, now) = (self.tenant, Instant::now());
        let watch = LockThread {
            listener,
            dead,
            budget: LockBudget::new(now),
            rate_limit: CallRateLimit::new(now),
            proc: None,
            has_flocks: false,
        };
        let named = Builder::new().name("locks".to_owned());
        named.spawn_scoped(scope, move || {
            if let Err(error) = watch.run(tenant) {
                // The listener is closed: from now on every lock call fails with ENOSYS.
                log::error!("watch file locks: {error}");
            }
        })?;
        Ok(())
    }
}

/// Lets the call continue that `listener` reports, if it still waits.
pub fn allow_call(listener: BorrowedFd<'_>) -> io::Result<()> {
    match sys::next_notification(listener)? {
        Some(call) => sys::answer_notification(listener, call.id, None),
        None => Ok(()),
    }
}

/// Receives the listener, which has arrived on `socket`.
pub fn receive_listener(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (_, listener) = sys::messages::receive(socket, &mut [0_u8])?;
    listener.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

struct LockThread<'env> {
    listener: OwnedFd,
    dead: &'env CancelToken,
    budget: LockBudget,
    rate_limit: CallRateLimit,
    /// The sandbox's `/proc`, opened at the first count.
    proc: Option<OwnedFd>,
    /// Whether `flock` was called.
    has_flocks: bool,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    Call,
    Time,
    End,
}

impl LockThread<'_> {
    fn run(mut self, tenant: Option<u32>) -> io::Result<()> {
        // The kernel shows the descriptors and mappings of a process to its own uid, and to the
        // creator of its user namespace, who has that uid too.
        if let Some(tenant) = tenant {
            sys::take_effective_ids(tenant)?;
        }
        sys::wake_on_same_cpu(self.listener.as_fd());
        let mut began_refusing = false;
        while self.wait(None)? == WakeReason::Call {
            let Some(call) = sys::next_notification(self.listener.as_fd())? else { continue };
            let Some(go_on) = self.decide(&call)? else { return Ok(()) };
            if !go_on && !std::mem::replace(&mut began_refusing, true) {
                log::info!("a sandbox holds too many file locks; refusing more");
            }
            let errno = if go_on { None } else { Some(libc::ENOLCK) };
            sys::answer_notification(self.listener.as_fd(), call.id, errno)?;
            let rest = self.rate_limit.spend(Instant::now());
            if !self.rest(rest)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the call continues; `None` if the sandbox has ended.
    fn decide(&mut self, call: &sys::Notification) -> io::Result<Option<bool>> {
        let kind = match call.number {
            libc::SYS_flock => LockCall::Flock,
            libc::SYS_fcntl => LockCall::Record,
            // A call that creates a socket: it only has to be noticed.
            _ => return Ok(Some(true)),
        };
        self.has_flocks |= kind == LockCall::Flock;
        loop {
            match self.budget.ask(kind, Instant::now()) {
                LockDecision::Continue => return Ok(Some(true)),
                LockDecision::Refuse => return Ok(Some(false)),
                LockDecision::Count(no_sooner) => {
                    let wait = no_sooner.saturating_duration_since(Instant::now());
                    if !self.rest(wait)? {
                        return Ok(None);
                    }
                    self.count(call);
                }
            }
        }
    }

    fn count(&mut self, call: &sys::Notification) {
        let began = Instant::now();
        if self.proc.is_none() {
            let proc = held::proc_of(call.thread);
            // If the caller is still waiting, the thread id was its own when it was looked up.
            let is_caller = sys::is_waiting(self.listener.as_fd(), call.id);
            self.proc = proc.filter(|_| is_caller);
        }
        let proc = self.proc.as_ref().map(AsFd::as_fd);
        let held = proc.and_then(|proc| held::count(proc, self.has_flocks).ok());
        self.budget.counted(held, began, Instant::now());
    }

    /// Waits for `time`. False if the sandbox ends.
    fn rest(&self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if self.wait(Some(left))? == WakeReason::End {
                return Ok(false);
            }
        }
    }

    /// Waits for a call. With a time, waits only for that time.
    fn wait(&self, time: Option<Duration>) -> io::Result<WakeReason> {
        let dead = PollFd::new(self.dead.as_fd(), PollFlags::POLLIN);
        let listener = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
        let mut fds = vec![dead];
        if time.is_none() {
            fds.push(listener);
        }
        match ppoll(&mut fds, time.map(TimeSpec::from_duration), None) {
            Ok(0) => return Ok(WakeReason::Time),
            Ok(_) => {}
            Err(Errno::EINTR) => return self.wait(time),
            Err(errno) => return Err(errno.into()),
        }
        let happened = |index: usize| fds.get(index).and_then(PollFd::revents);
        if happened(0).is_some_and(|flags| !flags.is_empty()) {
            return Ok(WakeReason::End);
        }
        // A hang-up without a call: the last process with the filter has ended.
        let called = happened(1).is_some_and(|flags| flags.contains(PollFlags::POLLIN));
        Ok(if called { WakeReason::Call } else { WakeReason::End })
    }
}
