//! A live kernel: what it executes, what it prints, and how it ended.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::printed::PrintedOutput;
use crate::workspace::kernels::{AnswerScanner, KernelAnswer, KernelLanguage, request_line};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::input_queue::InputQueue;
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{OutputSink, Stream};

/// The signal that interrupts code.
const INTERRUPT: i32 = libc::SIGINT;

/// Bytes that are kept of each stream of a kernel that does not start.
const START_BYTES_MAX: u64 = 64 << 10;

/// An interpreter that is alive, or was.
#[derive(Debug)]
pub struct RunningKernel {
    /// The language of its code.
    pub language: KernelLanguage,
    handles: KernelHandles,
    state: Mutex<KernelState>,
    ended: Condvar,
    /// Readable when a call may be over.
    woken: EventFd,
}

/// What controls the program of a kernel.
#[derive(Debug, Clone)]
pub struct KernelHandles {
    /// Kills it.
    pub cancel: CancelToken,
    /// Gives it orders.
    pub control: RunControl,
    /// Its requests.
    pub input: Arc<InputQueue>,
}

#[derive(Debug, Default)]
struct KernelState {
    call: Option<KernelCall>,
    /// Blocks that were executed.
    executions: u64,
    /// None while it has a call.
    idle_since: Option<Instant>,
    /// Whether it has made room for another.
    is_dropped: bool,
    end: Option<KernelEnd>,
}

/// A call that is executed.
#[derive(Debug)]
struct KernelCall {
    scanner: AnswerScanner,
    printed: PrintedOutput,
}

/// How a kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEnd {
    /// Its exit code, or -1.
    pub exit_code: i32,
    /// The limit that it met.
    pub limit: Option<&'static str>,
}

/// How far a call is.
#[derive(Debug)]
pub enum CallProgress {
    /// It is executed.
    Executing,
    /// The kernel has answered.
    Answered(KernelAnswer, PrintedOutput),
    /// What the kernel answers is no answer.
    Broken,
    /// The kernel has ended.
    Ended(KernelEnd, PrintedOutput),
}

impl RunningKernel {
    /// A kernel that is about to start, whose start counts as a call.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(language: KernelLanguage, handles: KernelHandles) -> std::io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let woken = EventFd::from_value_and_flags(0, flags)?;
        let kernel =
            Self { language, handles, state: Mutex::default(), ended: Condvar::new(), woken };
        kernel.lock().call =
            Some(KernelCall::new("", PrintedOutput::within(START_BYTES_MAX, START_BYTES_MAX)));
        Ok(kernel)
    }

    /// Takes the output of its program.
    pub fn sink(self: &Arc<Self>) -> Box<dyn OutputSink> {
        Box::new(KernelSink(Arc::clone(self)))
    }

    /// Claims it for a call. Returns false if it has ended, or was dropped.
    pub fn claim(&self) -> bool {
        let mut state = self.lock();
        let is_live = state.end.is_none() && !state.is_dropped;
        if is_live {
            state.idle_since = None;
        }
        is_live
    }

    /// Ends the claim.
    pub fn release(&self) {
        self.lock().idle_since = Some(Instant::now());
    }

    /// Since when it has had no call; none while it has one, or is no longer there.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.idle_since.filter(|_| state.end.is_none() && !state.is_dropped)
    }

    /// Kills it to make room for another, unless it has a call. Returns whether it did.
    pub fn drop_if_idle(&self) -> bool {
        let mut state = self.lock();
        if state.idle_since.is_none() || state.is_dropped || state.end.is_some() {
            return false;
        }
        state.is_dropped = true;
        drop(state);
        self.kill();
        true
    }

    /// Blocks that it has executed.
    pub fn executions(&self) -> u64 {
        self.lock().executions
    }

    /// Whether it can still execute anything.
    pub fn is_live(&self) -> bool {
        let state = self.lock();
        state.end.is_none() && !state.is_dropped
    }

    /// Sends it `code`, which keeps as much output as `printed` has room for. Returns its number.
    pub fn begin(&self, id: &str, code: &str, printed: PrintedOutput) -> u64 {
        let mut state = self.lock();
        state.call = Some(KernelCall::new(id, printed));
        state.executions += 1;
        let number = state.executions;
        drop(state);
        let line = request_line(id, code, &format!("<block {number}>"));
        if self.handles.input.write(line.as_bytes()).is_err() {
            // It reads no more: it is no kernel any longer.
            self.kill();
        }
        number
    }

    /// How far the call is. A call that is over is taken.
    pub fn progress(&self) -> CallProgress {
        let mut state = self.lock();
        // Under the lock: a later change wakes again.
        let _ = self.woken.read();
        let end = state.end;
        let Some(call) = state.call.take() else {
            return end.map_or(CallProgress::Broken, |end| {
                CallProgress::Ended(end, PrintedOutput::default())
            });
        };
        if let Some(answer) = call.scanner.complete() {
            return match serde_json::from_slice(answer) {
                Ok(answer) => CallProgress::Answered(answer, call.printed),
                Err(_) => {
                    state.call = Some(call);
                    CallProgress::Broken
                }
            };
        }
        if let Some(end) = end {
            return CallProgress::Ended(end, call.finish());
        }
        let is_broken = call.scanner.is_broken();
        state.call = Some(call);
        if is_broken { CallProgress::Broken } else { CallProgress::Executing }
    }

    /// What the call has printed; the call is given up. Waits for the end of a killed kernel.
    pub fn abandon(&self, deadline: Deadline) -> (Option<KernelEnd>, PrintedOutput) {
        let end = self.wait_end(deadline);
        let call = self.lock().call.take();
        (end, call.map(KernelCall::finish).unwrap_or_default())
    }

    /// Interrupts what it executes.
    pub fn interrupt(&self) {
        // A kernel that has ended executes nothing.
        let _ = self.handles.control.signal(INTERRUPT);
    }

    /// Kills it. Returns without waiting.
    pub fn kill(&self) {
        self.handles.cancel.cancel();
    }

    /// Waits until all of it is dead. Returns how it ended.
    pub fn wait_end(&self, deadline: Deadline) -> Option<KernelEnd> {
        let lives = |state: &mut KernelState| state.end.is_none();
        let waited = self.ended.wait_timeout_while(self.lock(), deadline.remaining(), lives);
        waited.unwrap_or_else(PoisonError::into_inner).0.end
    }

    /// Records its end. No output follows.
    pub fn finish(&self, end: KernelEnd) {
        self.lock().end = Some(end);
        self.ended.notify_all();
        self.wake();
    }

    /// Becomes readable when the call may be over.
    pub fn wake_fd(&self) -> impl AsFd + '_ {
        &self.woken
    }

    fn take(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.lock();
        // What runs on after a call belongs to none.
        let Some(call) = &mut state.call else { return };
        let printed = call.scanner.push(stream, bytes);
        call.printed.push(stream, &printed);
        let is_over = call.scanner.complete().is_some() || call.scanner.is_broken();
        drop(state);
        if is_over {
            self.wake();
        }
    }

    fn wake(&self) {
        // It fails only if the counter is at its maximum, which reads as woken.
        let _ = self.woken.write(1);
    }

    fn lock(&self) -> MutexGuard<'_, KernelState> {
        // Each change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelCall {
    fn new(id: &str, printed: PrintedOutput) -> Self {
        Self { scanner: AnswerScanner::new(id), printed }
    }

    /// What was printed, with what looked like the beginning of an answer.
    fn finish(mut self) -> PrintedOutput {
        for (stream, held) in self.scanner.finish() {
            self.printed.push(stream, &held);
        }
        self.printed
    }
}

/// Hands a kernel the output of its program.
struct KernelSink(Arc<RunningKernel>);

impl OutputSink for KernelSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.0.take(stream, bytes);
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn is_only_reader(&self) -> bool {
        true
    }
}
