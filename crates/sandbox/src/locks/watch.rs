//! The thread that answers the reported calls of one sandbox: those for locks and sockets.
//!
//! It is started by the first call: a program that takes no locks needs none. What it waits for is
//! in the hands of the tenant as little as with the thread that moves output: a tenant that keeps it
//! busy keeps its own calls waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::budget::{Answer, Budget, LockCall};
use super::held;
use super::pace::Pace;
use crate::sys;
use cofferdam_core::sync::cancel::CancelToken;

/// The listener of a sandbox until a thread has it.
#[derive(Debug)]
pub struct LockWatch<'socket> {
    /// The socket on which the listener comes, until it has come.
    socket: Option<BorrowedFd<'socket>>,
    listener: Option<OwnedFd>,
    /// Whether the listener has been received and no call has been reported on it.
    unused: bool,
    /// Whose locks are counted: the uid and gid of the program.
    tenant: Option<u32>,
}

impl<'socket> LockWatch<'socket> {
    /// Expects the listener on `socket`, if one is to come.
    pub fn new(socket: Option<BorrowedFd<'socket>>, tenant: Option<u32>) -> Self {
        Self { socket, listener: None, unused: false, tenant }
    }

    /// Takes the listener of a program that has begun: it was sent before.
    pub fn program_began(&mut self) -> io::Result<()> {
        if let Some(socket) = self.socket.take() {
            self.listener = Some(sys::receive_descriptor(socket)?);
            self.unused = true;
        }
        Ok(())
    }

    /// What becomes readable with the first call.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Whether the program has started and has made none of the reported calls. The kernel executes
    /// such a call only after the supervisor answers.
    pub fn is_unused(&self) -> bool {
        self.unused
    }

    /// Does without the listener: there is no process left that could call.
    pub fn end(&mut self) {
        self.listener = None;
    }

    /// Starts the thread, which lives until `dead` is raised or the last process has ended.
    pub fn start<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        dead: &'env CancelToken,
    ) -> io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        self.unused = false;
        let (tenant, now) = (self.tenant, Instant::now());
        let watch = Watch {
            listener,
            dead,
            budget: Budget::new(now),
            pace: Pace::new(now),
            proc: None,
            has_flocks: false,
        };
        let named = Builder::new().name("locks".to_owned());
        named.spawn_scoped(scope, move || {
            if let Err(error) = watch.run(tenant) {
                // The listener is closed: from now on every lock call fails, with ENOSYS.
                log::error!("watch file locks: {error}");
            }
        })?;
        Ok(())
    }
}

struct Watch<'env> {
    listener: OwnedFd,
    dead: &'env CancelToken,
    budget: Budget,
    pace: Pace,
    /// The sandbox's `/proc`, once something was to be counted.
    proc: Option<OwnedFd>,
    /// Whether `flock` was ever called.
    has_flocks: bool,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Call,
    Time,
    End,
}

impl Watch<'_> {
    fn run(mut self, tenant: Option<u32>) -> io::Result<()> {
        // The tables and mappings of a process are shown to its own uid, and to the maker of its
        // user namespace, who has that uid too.
        if let Some(tenant) = tenant {
            sys::take_effective_ids(tenant)?;
        }
        sys::wake_on_same_cpu(self.listener.as_fd());
        let mut began_refusing = false;
        while self.wait(None)? == Woken::Call {
            let Some(call) = sys::next_notification(self.listener.as_fd())? else { continue };
            let Some(go_on) = self.decide(&call)? else { return Ok(()) };
            if !go_on && !std::mem::replace(&mut began_refusing, true) {
                log::info!("a sandbox holds too many file locks; refusing more");
            }
            let errno = if go_on { None } else { Some(libc::ENOLCK) };
            sys::answer_notification(self.listener.as_fd(), call.id, errno)?;
            let rest = self.pace.spend(Instant::now());
            if !self.rest(rest)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the call goes on; none at the end of the sandbox.
    fn decide(&mut self, call: &sys::Notification) -> io::Result<Option<bool>> {
        let kind = match call.number {
            libc::SYS_flock => LockCall::Flock,
            libc::SYS_fcntl => LockCall::Record,
            // What makes sockets: that it was reported is all there is to it.
            _ => return Ok(Some(true)),
        };
        self.has_flocks |= kind == LockCall::Flock;
        loop {
            match self.budget.ask(kind, Instant::now()) {
                Answer::GoOn => return Ok(Some(true)),
                Answer::Refuse => return Ok(Some(false)),
                Answer::Count(no_sooner) => {
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
            // A caller that is still waiting is who had that number when it was looked up.
            let is_caller = sys::is_waiting(self.listener.as_fd(), call.id);
            self.proc = proc.filter(|_| is_caller);
        }
        let proc = self.proc.as_ref().map(AsFd::as_fd);
        let held = proc.and_then(|proc| held::count(proc, self.has_flocks).ok());
        self.budget.counted(held, began, Instant::now());
    }

    /// Waits so long; false at the end of the sandbox.
    fn rest(&self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if self.wait(Some(left))? == Woken::End {
                return Ok(false);
            }
        }
    }

    /// Waits for a call, or, with a time, for that alone.
    fn wait(&self, time: Option<Duration>) -> io::Result<Woken> {
        let dead = PollFd::new(self.dead.as_fd(), PollFlags::POLLIN);
        let listener = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
        let mut fds = vec![dead];
        if time.is_none() {
            fds.push(listener);
        }
        match ppoll(&mut fds, time.map(TimeSpec::from_duration), None) {
            Ok(0) => return Ok(Woken::Time),
            Ok(_) => {}
            Err(Errno::EINTR) => return self.wait(time),
            Err(errno) => return Err(errno.into()),
        }
        let happened = |index: usize| fds.get(index).and_then(PollFd::revents);
        if happened(0).is_some_and(|flags| !flags.is_empty()) {
            return Ok(Woken::End);
        }
        // A hang-up without a call: the last process with the filter has ended.
        let called = happened(1).is_some_and(|flags| flags.contains(PollFlags::POLLIN));
        Ok(if called { Woken::Call } else { Woken::End })
    }
}
