//! Cells that begin with a snapshot of many files, and of few.

use cofferdam::cases::{CellBase, Executor};

use super::scene::Cells;
use crate::report::Report;
use crate::stats::{Pairs, millis};

const MANY: usize = 5_000;
const FEW: usize = 50;

pub fn measure(report: &mut Report, cells: &Cells) {
    let [many, few] = [MANY, FEW].map(|files| cells.frozen(&cells.source(files)));
    let pairs = Pairs::take(report.pairs, || began(cells, &many), || began(cells, &few));
    report.row("case_begin", pairs.first(), pairs.second(), pairs.firsts());
    report.paired("case_begin_many", &pairs);
}

/// How long a Cell takes to begin. Its end is not counted.
fn began(cells: &Cells, base: &CellBase) -> f64 {
    let cell = cells.over(base);
    let took = millis(|| cell.start().unwrap());
    cell.stop();
    took
}
