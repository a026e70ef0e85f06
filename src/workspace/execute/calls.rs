//! Waits for a kernel's answer, interrupts code whose time is over, and kills what does not listen.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::kernel::{CallProgress, KernelEnd, RunningKernel};
use super::printed::PrintedOutput;
use crate::workspace::kernels::KernelAnswer;
use cofferdam_core::Watch;
use cofferdam_core::values::deadline::Deadline;

/// When an interrupt is repeated: one that comes before the code begins is not heard.
const INTERRUPT_EVERY: Duration = Duration::from_millis(250);
/// How long a client may have closed its sending side before it counts as gone.
const HANGUP_GRACE: Duration = Duration::from_millis(100);
/// How long a killed kernel may take to die.
const DEATH_WAIT: Duration = Duration::from_secs(10);

/// Why code was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// Its time was over.
    Time,
    /// Its client has left, or its workspace ends.
    Caller,
}

/// How a call ended.
#[derive(Debug)]
pub struct CallEnd {
    /// The answer, or how the kernel ended.
    pub result: Result<KernelAnswer, KernelEnd>,
    /// What was printed.
    pub printed: PrintedOutput,
    /// Why it was interrupted, if it was.
    pub interrupted: Option<Interruption>,
}

/// What happens to a call whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenOver {
    /// It is interrupted. Its kernel stays if the code ends within that time.
    Interrupt(Duration),
    /// Its kernel is killed.
    Kill,
}

/// A call after its interruption.
#[derive(Debug)]
struct Interrupted {
    why: Interruption,
    killed_at: Deadline,
    repeated_at: Deadline,
}

/// Waits for the end of the call that `kernel` executes, which has `timeout`.
pub fn wait(kernel: &RunningKernel, watch: &Watch, timeout: Duration, over: WhenOver) -> CallEnd {
    let deadline = Deadline::after(timeout);
    let mut caller = CallerWatch { watch, half_closed: None };
    let mut interrupted: Option<Interrupted> = None;
    let why = |interrupted: &Option<Interrupted>| interrupted.as_ref().map(|call| call.why);
    loop {
        match kernel.progress() {
            CallProgress::Executing => {}
            CallProgress::Answered(answer, printed) => {
                return CallEnd { result: Ok(answer), printed, interrupted: why(&interrupted) };
            }
            CallProgress::Ended(end, printed) => {
                return CallEnd { result: Err(end), printed, interrupted: why(&interrupted) };
            }
            CallProgress::Broken => return killed(kernel, why(&interrupted)),
        }
        let wake = match &mut interrupted {
            None => deadline.instant(),
            Some(call) if call.killed_at.passed() => return killed(kernel, Some(call.why)),
            Some(call) => {
                if call.repeated_at.passed() {
                    kernel.interrupt();
                    call.repeated_at = Deadline::after(INTERRUPT_EVERY);
                }
                call.killed_at.instant().min(call.repeated_at.instant())
            }
        };
        let is_gone = caller.wait(kernel, wake, interrupted.is_none());
        let over_now = match (&interrupted, is_gone) {
            (Some(_), _) => None,
            (None, true) => Some(Interruption::Caller),
            (None, false) => deadline.passed().then_some(Interruption::Time),
        };
        if let Some(why) = over_now {
            let WhenOver::Interrupt(wait) = over else { return killed(kernel, Some(why)) };
            let (killed_at, now) = (Deadline::after(wait), Deadline::after(Duration::ZERO));
            interrupted = Some(Interrupted { why, killed_at, repeated_at: now });
        }
    }
}

/// Kills the kernel, and waits until it is dead.
fn killed(kernel: &RunningKernel, interrupted: Option<Interruption>) -> CallEnd {
    kernel.kill();
    let (end, printed) = kernel.abandon(Deadline::after(DEATH_WAIT));
    let end = end.unwrap_or_else(|| {
        log::error!("a killed kernel has not ended");
        KernelEnd { exit_code: -1, limit: None }
    });
    CallEnd { result: Err(end), printed, interrupted }
}

/// Looks whether the caller is still there.
struct CallerWatch<'a> {
    watch: &'a Watch,
    /// When a client that sends no more counts as gone.
    half_closed: Option<Instant>,
}

impl CallerWatch<'_> {
    /// Waits until the call may be over, the caller is gone or `until` passes. Returns whether the caller
    /// is gone, if that is asked for.
    fn wait(&mut self, kernel: &RunningKernel, until: Instant, with_caller: bool) -> bool {
        let until = self.half_closed.filter(|_| with_caller).map_or(until, |gone| until.min(gone));
        let wake = kernel.wake_fd();
        let mut fds = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
        if with_caller {
            fds.push(PollFd::new(self.watch.cancel.as_fd(), PollFlags::POLLIN));
            let hangup = match self.half_closed {
                None => PollFlags::from_bits_retain(libc::POLLRDHUP),
                Some(_) => PollFlags::empty(),
            };
            fds.extend(self.watch.client.iter().map(|client| PollFd::new(client.as_fd(), hangup)));
        }
        let timeout = TimeSpec::from_duration(until.saturating_duration_since(Instant::now()));
        // An interrupted wait is repeated by the caller.
        if ppoll(&mut fds, Some(timeout), None).is_err() {
            return false;
        }
        // nix has no name for POLLRDHUP and returns `None` for it: an event did happen.
        let events = |index: usize| {
            let happened = fds.get(index).map(|fd| fd.revents().unwrap_or(PollFlags::POLLIN));
            happened.unwrap_or(PollFlags::empty())
        };
        let (is_cancelled, client) = (!events(1).is_empty(), events(2));
        let is_closed =
            client.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL);
        if !client.is_empty() && !is_closed && self.half_closed.is_none() {
            self.half_closed = Some(Instant::now() + HANGUP_GRACE);
        }
        let is_gone = self.half_closed.is_some_and(|gone| gone <= Instant::now());
        with_caller && (is_cancelled || is_closed || is_gone)
    }
}
