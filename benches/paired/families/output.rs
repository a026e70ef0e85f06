//! The cost of printing.

use cofferdam_test_server::service::{Service, Setup};
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace};

use crate::report::{Report, Table};
use crate::runner::Runner;
use crate::stats::{Pairs, millis};

const MIB: usize = 1 << 20;
const SIZES: [usize; 4] = [0, 64 << 10, 256 << 10, MIB];

pub fn measure(report: &mut Report) {
    let text = "All work and no play makes a dull box.\n".repeat(MIB / 39 + 1);
    let service = Setup::of(Workspace::running(&[RUN_SOLUTION]).with("text", &text)).start();
    let mut rows = Vec::new();
    for bytes in SIZES {
        let pairs = compare(&service, "text", bytes, report.pairs);
        let added = pairs.difference().median;
        rows.push(vec![(bytes >> 10) as f64, pairs.first(), added]);
        if bytes == MIB {
            report.paired("output_text", &pairs);
        }
    }
    // A zero byte takes six bytes in JSON.
    let zeros = compare(&service, "/dev/zero", MIB, report.pairs);
    report.paired("output_zeros", &zeros);
    report.table(Table {
        key: "output_bytes",
        title: "Size of the output",
        columns: &["KiB printed", "run, ms", "more than printing nothing, ms"],
        rows,
    });
}

/// Compares the same program printing `bytes` (A) and nothing (B).
fn compare(service: &Service, source: &str, bytes: usize, pairs: usize) -> Pairs {
    let of = |bytes| Runner::posting(service, &format!("exec head -c {bytes} {source}"));
    let (mut printing, mut silent) = (of(bytes), of(0));
    Pairs::take(
        pairs,
        || millis(|| assert!(printing.run() >= bytes, "the output is incomplete")),
        || millis(|| _ = silent.run()),
    )
}
