//! The rows, by group.

mod cases;
mod engine;
mod files;
mod kernel;
mod prestart;
mod processes;
mod resources;
mod service;

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use super::Row;

/// Every row, in order.
pub fn all() -> impl Iterator<Item = Row> {
    let groups = [
        files::ROWS,
        processes::ROWS,
        resources::ROWS,
        kernel::ROWS,
        service::ROWS,
        engine::ROWS,
        engine::egress::requests::ROWS,
        engine::evaluations::ROWS,
        cases::ROWS,
        prestart::ROWS,
    ];
    groups.into_iter().flatten().copied()
}

/// Calls `work` with each number below `count` in a thread of its own; resumes the first panic.
fn at_once<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        let results: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}
