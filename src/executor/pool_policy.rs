//! Which boxes are to be made ahead, and which are to go (pure: times come from outside).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::executor::pool_key::Blueprint;

/// A run that has lasted longer stands back where CPUs are short, and so is no
/// reason not to make boxes ahead.
const YOUNG: Duration = Duration::from_secs(1);
/// A run that has not lasted as long is left alone: it may be over before a box is made.
pub const SHORT: Duration = Duration::from_millis(5);
/// So long after a run has ended nothing is made: its answer is on the way.
const ANSWERING: Duration = Duration::from_micros(500);
/// Boxes of a blueprint that nobody has asked for in so long are let go.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Before a blueprint that no box could be made from is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Before one is whose template has just changed.
const UNSETTLED_RETRY_AFTER: Duration = Duration::from_millis(50);
/// Blueprints that are remembered beside those that have boxes.
const REMEMBERED_MAX: usize = 64;

/// What is ready and wanted, by blueprint. `B` is a box.
#[derive(Debug)]
pub struct Shelves<B> {
    shelves: Vec<Shelf<B>>,
    /// When each live run began.
    live: Vec<Instant>,
    ended_at: Option<Instant>,
    boxes_max: usize,
    cpus: usize,
    closed: bool,
}

#[derive(Debug)]
struct Shelf<B> {
    blueprint: Arc<Blueprint>,
    ready: VecDeque<B>,
    being_made: usize,
    /// Runs of it that are live.
    live: usize,
    /// The most of them at once since it was last idle.
    live_peak: usize,
    used_at: Instant,
    not_before: Instant,
}

/// What the maker is to do next.
#[derive(Debug)]
pub enum Next<B> {
    /// Make a box, and [`Shelves::made`] it.
    Make(Arc<Blueprint>),
    /// Let go of these.
    LetGo(Vec<B>),
    /// Nothing until somebody says so or that time has come.
    Wait(Option<Instant>),
}

/// How making a box went.
#[derive(Debug)]
pub enum Made<B> {
    /// It stands.
    Stands(B),
    /// Its template is being changed.
    Unsettled,
    /// It cannot be made.
    Failed,
}

/// What there is for a run.
#[derive(Debug)]
pub enum Found<B> {
    /// A box.
    Ready(B),
    /// One is being made.
    BeingMade,
    /// None.
    Nothing,
}

impl<B> Shelves<B> {
    /// For at most `boxes_max` boxes on a host of so many CPUs.
    pub fn new(boxes_max: usize, cpus: usize) -> Self {
        Self {
            shelves: Vec::new(),
            live: Vec::new(),
            ended_at: None,
            boxes_max,
            cpus,
            closed: false,
        }
    }

    /// A run of `blueprint` begins. Gives what it has made useless.
    pub fn begin(&mut self, blueprint: &Arc<Blueprint>, now: Instant) -> Vec<B> {
        self.live.push(now);
        let outdated = self.take_shelves(|shelf| shelf.blueprint.is_outdated_by(blueprint));
        let shelf = self.shelf_for(blueprint, now);
        shelf.live += 1;
        shelf.live_peak = shelf.live_peak.max(shelf.live);
        shelf.used_at = now;
        outdated
    }

    /// A run of `blueprint` that began at `began` has ended.
    pub fn end(&mut self, blueprint: &Blueprint, began: Instant, now: Instant) {
        self.ended_at = Some(now);
        if let Some(index) = self.live.iter().position(|at| *at == began) {
            self.live.swap_remove(index);
        }
        if let Some(shelf) = self.find(blueprint) {
            shelf.live = shelf.live.saturating_sub(1);
        }
    }

    /// What there is for a run of `blueprint`; the longest made first.
    pub fn take(&mut self, blueprint: &Blueprint) -> Found<B> {
        let Some(shelf) = self.find(blueprint) else { return Found::Nothing };
        match shelf.ready.pop_front() {
            Some(ready) => Found::Ready(ready),
            None if shelf.being_made > 0 => Found::BeingMade,
            None => Found::Nothing,
        }
    }

    /// Takes every box of `blueprint`, for others to be made in their places.
    pub fn clear(&mut self, blueprint: &Blueprint) -> Vec<B> {
        self.find(blueprint).map(|shelf| shelf.ready.drain(..).collect()).unwrap_or_default()
    }

    /// Makes no more boxes from now on, and has all of them let go.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Boxes that are ready, of all blueprints.
    pub fn ready(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.ready.len()).sum()
    }

    /// What the maker is to do at `now`.
    pub fn next(&mut self, now: Instant) -> Next<B> {
        let mut let_go = self.take_shelves(|shelf| is_idle(shelf, now));
        if self.closed {
            let_go.extend(self.take_shelves(|_| true));
            return if let_go.is_empty() { Next::Wait(None) } else { Next::LetGo(let_go) };
        }
        if !let_go.is_empty() {
            return Next::LetGo(let_go);
        }
        if self.has_time(now)
            && let Some(wanted) = self.most_wanted(now)
        {
            if self.ready() < self.boxes_max {
                return self.make(wanted);
            }
            if let Some(box_of_another) = self.least_used_but(wanted) {
                return Next::LetGo(vec![box_of_another]);
            }
        }
        Next::Wait(self.next_look(now))
    }

    /// A box that [`Next::Make`] asked for; given back where nobody wants it any more.
    pub fn made(&mut self, blueprint: &Blueprint, made: Made<B>, now: Instant) -> Option<B> {
        let closed = self.closed;
        let Some(shelf) = self.find(blueprint) else {
            return if let Made::Stands(ready) = made { Some(ready) } else { None };
        };
        shelf.being_made = shelf.being_made.saturating_sub(1);
        match made {
            Made::Stands(ready) if closed || shelf.live_peak == 0 => return Some(ready),
            Made::Stands(ready) => shelf.ready.push_back(ready),
            Made::Unsettled => shelf.not_before = now + UNSETTLED_RETRY_AFTER,
            Made::Failed => shelf.not_before = now + RETRY_AFTER,
        }
        None
    }

    /// Whether making a box takes nothing from a run that is live.
    fn has_time(&self, now: Instant) -> bool {
        let younger_than = |age: Duration| {
            self.live.iter().filter(|began| now.duration_since(**began) < age).count()
        };
        let answering = self.ended_at.is_some_and(|at| now.duration_since(at) < ANSWERING);
        !answering && younger_than(SHORT) == 0 && younger_than(YOUNG) < self.cpus
    }

    fn find(&mut self, blueprint: &Blueprint) -> Option<&mut Shelf<B>> {
        self.shelves.iter_mut().find(|shelf| *shelf.blueprint == *blueprint)
    }

    fn shelf_for(&mut self, blueprint: &Arc<Blueprint>, now: Instant) -> &mut Shelf<B> {
        let known = self.shelves.iter().position(|shelf| shelf.blueprint == *blueprint);
        let index = known.unwrap_or_else(|| {
            self.forget_one();
            self.shelves.push(Shelf {
                blueprint: Arc::clone(blueprint),
                ready: VecDeque::new(),
                being_made: 0,
                live: 0,
                live_peak: 0,
                used_at: now,
                not_before: now,
            });
            self.shelves.len() - 1
        });
        &mut self.shelves[index]
    }

    /// Makes room for a blueprint more.
    fn forget_one(&mut self) {
        if self.shelves.len() < REMEMBERED_MAX + self.boxes_max {
            return;
        }
        let bare = self.shelves.iter().enumerate().filter(|(_, shelf)| {
            shelf.ready.is_empty() && shelf.being_made == 0 && shelf.live == 0
        });
        if let Some((index, _)) = bare.min_by_key(|(_, shelf)| shelf.used_at) {
            self.shelves.swap_remove(index);
        }
    }

    fn make(&mut self, index: usize) -> Next<B> {
        let Some(shelf) = self.shelves.get_mut(index) else { return Next::Wait(None) };
        shelf.being_made += 1;
        Next::Make(Arc::clone(&shelf.blueprint))
    }

    /// The blueprint used last of those that have fewer boxes than runs at once.
    fn most_wanted(&self, now: Instant) -> Option<usize> {
        let wanted =
            self.shelves.iter().enumerate().filter(|(_, shelf)| {
                shelf.ready.len() < shelf.live_peak && shelf.not_before <= now
            });
        wanted.max_by_key(|(_, shelf)| shelf.used_at).map(|(index, _)| index)
    }

    /// A box of the blueprint that was used longest ago, if before the one at `index`.
    fn least_used_but(&mut self, index: usize) -> Option<B> {
        let used_at = self.shelves.get(index)?.used_at;
        let others = self.shelves.iter_mut().filter(|shelf| !shelf.ready.is_empty());
        let least = others.min_by_key(|shelf| shelf.used_at)?;
        if least.used_at >= used_at {
            return None;
        }
        least.live_peak = least.live_peak.saturating_sub(1);
        least.ready.pop_front()
    }

    /// Forgets shelves; gives the boxes that were on them. One with a live run
    /// stays, without its boxes.
    fn take_shelves(&mut self, goes: impl Fn(&Shelf<B>) -> bool) -> Vec<B> {
        let mut boxes = Vec::new();
        self.shelves.retain_mut(|shelf| {
            let goes = goes(shelf);
            if goes {
                boxes.extend(shelf.ready.drain(..));
                shelf.live_peak = 0;
            }
            !goes || shelf.live > 0 || shelf.being_made > 0
        });
        boxes
    }

    /// When something changes by itself: a run grows old, a shelf idle, a failure old enough.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let idle = self.shelves.iter().map(|shelf| shelf.used_at + IDLE_MAX);
        let again = self.shelves.iter().map(|shelf| shelf.not_before);
        let time = if self.has_time(now) { None } else { self.next_time() };
        time.into_iter().chain(idle).chain(again).filter(|at| *at > now).min()
    }

    /// When [`Shelves::has_time`] will be true if no run begins or ends until then:
    /// one look then, not one for each run.
    fn next_time(&self) -> Option<Instant> {
        let answered = self.ended_at.map(|ended| ended + ANSWERING);
        let mut live = self.live.clone();
        live.sort_unstable();
        let short = live.last().map(|youngest| *youngest + SHORT);
        // Of so many young runs as there are CPUs, the first has to grow old.
        let old = live.len().checked_sub(self.cpus).and_then(|index| live.get(index));
        let old = old.map(|began| *began + YOUNG);
        [answered, short, old].into_iter().flatten().max()
    }
}

fn is_idle<B>(shelf: &Shelf<B>, now: Instant) -> bool {
    shelf.live == 0 && now.duration_since(shelf.used_at) >= IDLE_MAX
}
