//! Boxes made ahead of the runs that will want them, by a thread of their own.
//!
//! A box dies with the thread that cloned it, so the maker lives as long as any
//! run in a box of its making: until this is dropped, when there is none.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use super::blueprint::Blueprint;
use super::boxes::{Boxes, Ready};
use super::shelves::{Found, Made, Next, SHORT, Shelves};
use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{SetupFailure, StandbyMetrics};

/// How long a run waits for a box that is being made; one of its own takes no longer.
const MAKING_WAIT: Duration = Duration::from_millis(10);

/// The boxes, and the thread that makes them.
#[derive(Debug)]
pub struct Standby {
    shared: Arc<Shared>,
    maker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    boxes: Arc<Boxes>,
    boxes_max: usize,
    counts: Counts,
    state: Mutex<State>,
    /// For the maker.
    work: Condvar,
    /// For runs that wait for a box.
    made: Condvar,
}

#[derive(Debug)]
struct State {
    shelves: Shelves<Ready>,
    /// When the maker looks again by itself.
    looks_at: Option<Instant>,
    /// Whether the maker is to end.
    stopping: bool,
}

/// What became of boxes, since the start.
#[derive(Debug, Default)]
struct Counts {
    made: Counter,
    used: Counter,
    dropped: Counter,
    failed: Counter,
}

/// A run of some blueprint that is live; dropped when it has ended.
#[derive(Debug)]
pub struct LiveRun<'a> {
    standby: &'a Standby,
    blueprint: Arc<Blueprint>,
    began: Instant,
}

impl Standby {
    /// At most `boxes_max` of `boxes`.
    pub fn start(boxes: Arc<Boxes>, boxes_max: usize) -> Result<Self, SetupFailure> {
        let cpus = available_parallelism().map_or(1, usize::from);
        let shelves = Shelves::new(boxes_max, cpus);
        let shared = Arc::new(Shared {
            boxes,
            boxes_max,
            counts: Counts::default(),
            state: Mutex::new(State { shelves, looks_at: None, stopping: false }),
            work: Condvar::new(),
            made: Condvar::new(),
        });
        let maker = Builder::new().name("standby".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.make_and_let_go()
        });
        let maker = maker.map_err(|error| SetupFailure::from_io("standby thread", &error))?;
        Ok(Self { shared, maker: Some(maker) })
    }

    /// Notes that a run of `blueprint` begins: from now on boxes of it are wanted.
    pub fn begin(&self, blueprint: Blueprint) -> LiveRun<'_> {
        let (blueprint, began) = (Arc::new(blueprint), Instant::now());
        let mut state = self.shared.lock();
        let outdated = state.shelves.begin(&blueprint, began);
        self.shared.tell_maker(&state, began);
        drop(state);
        // Killing and reaping them is done here, where nobody waits for the lock.
        self.shared.let_go(outdated);
        LiveRun { standby: self, blueprint, began }
    }

    /// The figures now.
    pub fn figures(&self) -> StandbyMetrics {
        let Shared { boxes_max, counts, .. } = &*self.shared;
        StandbyMetrics {
            boxes_max: *boxes_max,
            ready: self.shared.lock().shelves.ready(),
            made: counts.made.get(),
            used: counts.used.get(),
            dropped: counts.dropped.get(),
            failed: counts.failed.get(),
        }
    }

    /// Lets go of every box and makes no more.
    pub fn close(&self) {
        self.shared.lock().shelves.close();
        self.shared.work.notify_one();
    }
}

impl LiveRun<'_> {
    /// A box for this run, if one is ready or will be at once.
    pub fn take(&self) -> Option<Ready> {
        let shared = &self.standby.shared;
        loop {
            let ready = shared.take(&self.blueprint)?;
            // What is fit is asked outside the lock: it reads files.
            match shared.boxes.is_fit(&ready) {
                Ok(true) => {
                    shared.counts.used.increment();
                    return Some(ready);
                }
                Ok(false) => log::info!("a box made ahead is no longer fit: let go"),
                Err(failure) => log::warn!("a box made ahead: {failure}: let go"),
            }
            self.let_go_of_others();
            shared.let_go([ready]);
        }
    }

    /// Where one box is dead or outdated, the others of its kind are not to be counted on.
    pub fn let_go_of_others(&self) {
        let others = self.standby.shared.lock().shelves.clear(&self.blueprint);
        self.standby.shared.let_go(others);
    }
}

impl Drop for LiveRun<'_> {
    fn drop(&mut self) {
        let (shared, now) = (&self.standby.shared, Instant::now());
        let mut state = shared.lock();
        state.shelves.end(&self.blueprint, self.began, now);
        shared.tell_maker(&state, now);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the maker, unless it looks soon: a wake-up for each beginning and end
    /// would cost the runs more than a box that stands a little later.
    fn tell_maker(&self, state: &State, now: Instant) {
        if state.looks_at.is_none_or(|at| at > now + SHORT) {
            self.work.notify_one();
        }
    }

    /// Kills and reaps `boxes`, which no run will get.
    fn let_go(&self, boxes: impl IntoIterator<Item = Ready>) {
        for unused in boxes {
            drop(unused);
            self.counts.dropped.increment();
        }
    }

    fn take(&self, blueprint: &Blueprint) -> Option<Ready> {
        let deadline = Deadline::after(MAKING_WAIT);
        let mut state = self.lock();
        loop {
            match state.shelves.take(blueprint) {
                Found::Ready(ready) => return Some(ready),
                Found::BeingMade if !deadline.passed() => {
                    state = wait(&self.made, state, Some(deadline.remaining()));
                }
                Found::BeingMade | Found::Nothing => return None,
            }
        }
    }

    /// What the maker does.
    fn make_and_let_go(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let now = Instant::now();
            state.looks_at = Some(now);
            match state.shelves.next(now) {
                Next::Wait(until) => {
                    state.looks_at = until;
                    let at_most = until.map(|until| until.saturating_duration_since(now));
                    state = wait(&self.work, state, at_most);
                }
                Next::LetGo(boxes) => {
                    drop(state);
                    self.let_go(boxes);
                    state = self.lock();
                }
                Next::Make(blueprint) => {
                    drop(state);
                    let made = self.make(&blueprint);
                    state = self.lock();
                    let unwanted = state.shelves.made(&blueprint, made, Instant::now());
                    drop(state);
                    self.made.notify_all();
                    self.let_go(unwanted);
                    state = self.lock();
                }
            }
        }
    }

    fn make(&self, blueprint: &Blueprint) -> Made<Ready> {
        match self.boxes.stand(blueprint) {
            Ok(Some(ready)) => {
                self.counts.made.increment();
                Made::Stands(ready)
            }
            Ok(None) => Made::Unsettled,
            Err(failure) => {
                log::warn!("a box cannot be made ahead: {failure}");
                self.counts.failed.increment();
                Made::Failed
            }
        }
    }
}

fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    at_most: Option<Duration>,
) -> MutexGuard<'a, State> {
    match at_most {
        Some(at_most) => {
            let waited = condition.wait_timeout(state, at_most);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => condition.wait(state).unwrap_or_else(PoisonError::into_inner),
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.close();
        {
            let mut state = self.shared.lock();
            state.stopping = true;
        }
        self.shared.work.notify_one();
        if let Some(maker) = self.maker.take()
            && maker.join().is_err()
        {
            log::error!("the thread that makes boxes ahead panicked");
        }
        // With the maker gone its boxes are dying; whatever was ready is reaped with the shelves.
    }
}
