//! Cells and trials of Cases, with the goals of issue 19.

mod commands;
#[path = "../../../../../tests/cases/conformance/engine.rs"]
#[allow(dead_code, reason = "the tests of containers use all of it")]
mod engine;
mod limits;
mod scene;
mod snapshots;
mod trials;

use self::scene::Cells;
use crate::report::Report;

pub fn measure(report: &mut Report) {
    if let Some(cells) = Cells::open() {
        commands::measure(report, &cells);
        snapshots::measure(report, &cells);
        limits::measure(report, &cells);
    }
    trials::measure(report);
}
