//! How the cost of a run grows with its workspace.

use super::runs::beside_bare;
use crate::bare;
use crate::report::{Report, Table};

const FILES: [usize; 4] = [10, 100, 1_000, 5_000];
const FILE_BYTES: usize = 4096;

pub fn measure(report: &mut Report) {
    let rows = FILES.iter().map(|&files| {
        let pairs = beside_bare(bare::workspace(":", files, FILE_BYTES), report.pairs);
        vec![files as f64, pairs.first(), pairs.second(), pairs.ratio().median]
    });
    let rows = rows.collect();
    report.table(Table {
        key: "workspace_files",
        title: "Size of the workspace",
        columns: &["files of 4 KiB", "`/run`, ms", "bare `make test`, ms", "ratio"],
        rows,
    });
}
