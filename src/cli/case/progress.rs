//! The progress of a run on stderr: a bar on a terminal, else a line for each Cell that begins or ends.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::case::run::{CellResult, CellStatus, PlannedCell, RunObserver};
use crate::cli::stdio::for_terminal;

/// How often the bar is redrawn while nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";
/// Characters of the bar.
const BAR_WIDTH: usize = 20;

/// Shows a run until it is dropped.
#[derive(Debug)]
pub struct CellProgress {
    shown: Arc<Mutex<CellCounts>>,
    is_terminal: bool,
    /// Redraws the bar until its channel is closed.
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Cells of this process by what they have come to.
#[derive(Debug)]
struct CellCounts {
    since: Instant,
    planned: usize,
    running: usize,
    passed: usize,
    not_passed: usize,
    failed: usize,
    skipped: usize,
}

impl CellProgress {
    /// Begins to show a run.
    pub fn begin() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let shown = Arc::new(Mutex::new(CellCounts::new(Instant::now())));
        let ticker = if is_terminal { begin_ticker(Arc::clone(&shown)) } else { None };
        Self { shown, is_terminal, ticker }
    }

    /// Writes a line above the bar.
    fn write(&self, counts: &CellCounts, line: Option<&str>) {
        let line = line.map(|line| format!("{}\n", for_terminal(line))).unwrap_or_default();
        if self.is_terminal {
            put(&format!("{CLEAR}{line}{}", counts.bar(counts.since.elapsed())));
        } else {
            put(&line);
        }
    }
}

impl RunObserver for CellProgress {
    fn planned(&self, cells: usize) {
        locked(&self.shown).planned = cells;
    }

    fn began(&self, cell: &PlannedCell) {
        let mut counts = locked(&self.shown);
        counts.running += 1;
        let line = format!("{} running", cell.id);
        self.write(&counts, Some(line.as_str()).filter(|_| !self.is_terminal));
    }

    fn ended(&self, result: &CellResult) {
        let mut counts = locked(&self.shown);
        counts.add(result);
        let line = end_line(result);
        self.write(&counts, Some(&line));
    }
}

impl Drop for CellProgress {
    fn drop(&mut self) {
        if let Some((waker, ticker)) = self.ticker.take() {
            drop(waker);
            let _ = ticker.join();
            put(CLEAR);
        }
    }
}

impl CellCounts {
    fn new(since: Instant) -> Self {
        let (planned, running, passed, not_passed, failed, skipped) = (0, 0, 0, 0, 0, 0);
        Self { since, planned, running, passed, not_passed, failed, skipped }
    }

    fn add(&mut self, result: &CellResult) {
        self.running = self.running.saturating_sub(1);
        match result.end.status {
            CellStatus::Done if result.has_passed() => self.passed += 1,
            CellStatus::Done => self.not_passed += 1,
            CellStatus::Failed => self.failed += 1,
            CellStatus::Skipped => self.skipped += 1,
            CellStatus::Pending | CellStatus::Running => {}
        }
    }

    /// The bar with its numbers, without what is 0.
    fn bar(&self, elapsed: Duration) -> String {
        let ended = self.passed + self.not_passed + self.failed + self.skipped;
        let full = (ended * BAR_WIDTH).checked_div(self.planned).unwrap_or(0).min(BAR_WIDTH);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_WIDTH - full));
        let numbers = [
            (self.running, "running"),
            (self.passed, "passed"),
            (self.not_passed, "not passed"),
            (self.failed, "failed"),
            (self.skipped, "skipped"),
        ];
        let numbers = numbers.iter().filter(|(count, _)| *count > 0);
        let words: String = numbers.map(|(count, word)| format!(", {count} {word}")).collect();
        format!("[{bar}] {ended}/{} in {} s{words}", self.planned, elapsed.as_secs())
    }
}

/// What a Cell has come to.
fn end_line(result: &CellResult) -> String {
    let end = &result.end;
    let word = match end.status {
        CellStatus::Done if result.has_passed() => "passed",
        CellStatus::Done => "not passed",
        status => status.word(),
    };
    let score = end.overall_score.map_or_else(String::new, |score| format!(" {score:.4}"));
    let fault = end.error.as_ref().map(|fault| format!(": {}: {}", fault.code, fault.message));
    let reason = end.skipped_reason.as_ref().map(|reason| format!(": {reason}"));
    let why = fault.or(reason).unwrap_or_default().replace('\n', " ");
    format!("{} {word}{score}{why}", result.cell.id)
}

fn begin_ticker(shown: Arc<Mutex<CellCounts>>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (waker, woken) = channel();
    let named = thread::Builder::new().name("progress".to_owned());
    let ticker = named.spawn(move || {
        while woken.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let counts = locked(&shown);
            put(&format!("{CLEAR}{}", counts.bar(counts.since.elapsed())));
        }
    });
    // Without a thread, the bar is redrawn when a Cell begins or ends.
    Some((waker, ticker.ok()?))
}

fn locked(shown: &Mutex<CellCounts>) -> MutexGuard<'_, CellCounts> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes `text` to stderr. Ignores write errors.
fn put(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
