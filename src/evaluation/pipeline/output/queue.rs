//! What an evaluation tells its observer, in order, on a thread of its own: an observer that is slow keeps no
//! sandbox from being watched.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::evaluation::pipeline::progress::EvaluationObserver;
use crate::evaluation::result::{EvaluationResult, EvaluationStep, TestResult};
use cofferdam_core::egress::EgressRecord;

/// What may wait for the observer.
const WAITING_MAX: usize = 64;

/// One thing that is told.
#[derive(Debug)]
enum ToldEvent {
    Step(EvaluationStep),
    Test(Box<TestResult>),
    Output(WrittenText),
    Egress(Box<EgressRecord>),
    Snapshot(Box<EvaluationResult>),
    /// Nothing comes after it.
    End,
}

/// What a program wrote.
#[derive(Debug)]
pub struct WrittenText {
    /// The step of the program.
    pub step: EvaluationStep,
    /// The name of the test, if it is one.
    pub name: Option<String>,
    /// The text.
    pub text: String,
}

/// Tells an observer. When it is dropped, the observer has been told everything.
#[derive(Debug)]
pub struct ObserverQueue<'scope> {
    send: SyncSender<ToldEvent>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

/// Tells what programs write. Clones tell the same observer.
#[derive(Debug, Clone)]
pub struct TextTeller(SyncSender<ToldEvent>);

impl<'scope> ObserverQueue<'scope> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        observer: &'env dyn EvaluationObserver,
    ) -> io::Result<Self> {
        let (send, told) = sync_channel(WAITING_MAX);
        let thread = Builder::new().name("observer".to_owned());
        let thread = thread.spawn_scoped(scope, move || tell(observer, &told))?;
        Ok(Self { send, thread: Some(thread) })
    }

    /// A step begins.
    pub fn step(&self, step: EvaluationStep) {
        self.tell(ToldEvent::Step(step));
    }

    /// A test has ended.
    pub fn test(&self, result: &TestResult) {
        self.tell(ToldEvent::Test(Box::new(result.clone())));
    }

    /// A sandbox asked for a host.
    pub fn egress(&self, record: EgressRecord) {
        self.tell(ToldEvent::Egress(Box::new(record)));
    }

    /// What is known.
    pub fn snapshot(&self, result: &EvaluationResult) {
        self.tell(ToldEvent::Snapshot(Box::new(result.clone())));
    }

    /// What tells the observer of texts.
    pub fn texts(&self) -> TextTeller {
        TextTeller(self.send.clone())
    }

    fn tell(&self, event: ToldEvent) {
        // Without its thread there is no one to tell.
        let _ = self.send.send(event);
    }
}

impl TextTeller {
    /// Tells `text`, unless too much waits: then it comes back.
    pub fn try_tell(&self, text: WrittenText) -> Option<WrittenText> {
        match self.0.try_send(ToldEvent::Output(text)) {
            Err(TrySendError::Full(ToldEvent::Output(text))) => Some(text),
            _ => None,
        }
    }

    /// Tells `text`, and waits until there is room for it.
    pub fn tell(&self, text: WrittenText) {
        let _ = self.0.send(ToldEvent::Output(text));
    }
}

impl Drop for ObserverQueue<'_> {
    fn drop(&mut self) {
        self.tell(ToldEvent::End);
        let thread = self.thread.take().map(ScopedJoinHandle::join);
        if thread.is_some_and(|ended| ended.is_err()) {
            log::error!("the observer of an evaluation failed");
        }
    }
}

fn tell(observer: &dyn EvaluationObserver, told: &Receiver<ToldEvent>) {
    for event in told {
        match event {
            ToldEvent::Step(step) => observer.step(step),
            ToldEvent::Test(result) => observer.test(&result),
            ToldEvent::Output(WrittenText { step, name, text }) => {
                observer.output(step, name.as_deref(), &text);
            }
            ToldEvent::Egress(record) => observer.egress(&record),
            ToldEvent::Snapshot(result) => observer.snapshot(&result),
            ToldEvent::End => return,
        }
    }
}
