//! Counts calls by caller and time, and compares the counts with ceilings.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write as _};

use crate::ceilings::{Ceilings, HOSTS_DIFFER_BY, WAITING_MAX};
use crate::trace::{Call, Caller};

/// Calls by which threads wait for each other. Their number depends on which thread is faster.
const WAITING: [&str; 4] = ["futex", "epoll_wait", "restart_syscall", "sched_yield"];
/// How many calls the message about an exceeded ceiling names.
const NAMES_SHOWN: usize = 15;

/// One part of the calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Calls of the server's threads, except waiting.
    Ours,
    /// Calls by which the server's threads wait.
    Waiting,
    /// Calls in the sandbox before the program is executed.
    Box,
    /// Calls of both before the answer, except waiting.
    Path,
}

impl Part {
    const ALL: [Self; 4] = [Self::Ours, Self::Waiting, Self::Box, Self::Path];

    fn holds(self, call: &Call, on_path: bool) -> bool {
        let waiting = call.caller == Caller::Ours && WAITING.contains(&call.name.as_str());
        match self {
            Self::Ours => call.caller == Caller::Ours && !waiting,
            Self::Waiting => waiting,
            Self::Box => call.caller == Caller::Box,
            Self::Path => on_path && !waiting,
        }
    }

    fn ceiling(self, ceilings: &Ceilings) -> usize {
        match self {
            Self::Ours => ceilings.ours + HOSTS_DIFFER_BY,
            Self::Waiting => WAITING_MAX,
            Self::Box => ceilings.in_box + HOSTS_DIFFER_BY,
            Self::Path => ceilings.path + HOSTS_DIFFER_BY,
        }
    }
}

/// When a run began, when its answer arrived, and when the next run began: seconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub began: f64,
    pub answered: f64,
    pub over: f64,
}

/// The calls of each run.
#[derive(Debug)]
pub struct Counts<'a> {
    calls: &'a [Call],
    windows: &'a [Window],
}

impl<'a> Counts<'a> {
    pub fn of(calls: &'a [Call], windows: &'a [Window]) -> Self {
        Self { calls, windows }
    }

    /// Prints the row `name` and compares each part with its ceiling.
    #[track_caller]
    pub fn hold(&self, name: &str, ceilings: &Ceilings) {
        println!("{name:28} {self}");
        let broken =
            Part::ALL.into_iter().filter(|part| self.median(*part) > part.ceiling(ceilings));
        let told: String = broken.map(|part| self.account(part, part.ceiling(ceilings))).collect();
        assert!(told.is_empty(), "{name}: more system calls than the ceiling\n{told}");
    }

    fn in_window(&self, part: Part, window: &Window) -> impl Iterator<Item = &'a Call> {
        let window = *window;
        self.calls.iter().filter(move |call| {
            let on_path = call.at <= window.answered;
            window.began <= call.at && call.at < window.over && part.holds(call, on_path)
        })
    }

    /// Occasional calls of a thread occur in few runs and do not change the median.
    fn median(&self, part: Part) -> usize {
        let counts = self.in_order(part);
        counts[counts.len() / 2]
    }

    /// The number of calls of each run, in ascending order.
    fn in_order(&self, part: Part) -> Vec<usize> {
        let count = |window| self.in_window(part, window).count();
        let mut counts: Vec<usize> = self.windows.iter().map(count).collect();
        counts.sort_unstable();
        counts
    }

    /// The most frequent calls of a part that exceeds its ceiling.
    fn account(&self, part: Part, ceiling: usize) -> String {
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for call in self.windows.iter().flat_map(|window| self.in_window(part, window)) {
            *by_name.entry(&call.name).or_default() += 1;
        }
        let mut by_name: Vec<(&str, usize)> = by_name.into_iter().collect();
        by_name.sort_by_key(|(name, count)| (Reverse(*count), *name));
        let runs = self.windows.len();
        let mut told = format!("{part:?}: {}, where {ceiling} are allowed\n", self.median(part));
        for (name, count) in by_name.into_iter().take(NAMES_SHOWN) {
            let _ = writeln!(told, "{count:6} in {runs} runs  {name}");
        }
        told
    }
}

impl fmt::Display for Counts<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in Part::ALL {
            let counts = self.in_order(part);
            let (least, most) = (counts[0], counts[counts.len() - 1]);
            write!(out, "{part:?} {} ({least} to {most})  ", self.median(part))?;
        }
        Ok(())
    }
}
