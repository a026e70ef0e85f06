//! How long a command out of time takes to end with all that it started, in sessions of their own.

use std::fs;
use std::time::Duration;

use cofferdam::cases::{CellExecutorKind, ExecRequest, Executor};

use super::scene::Cells;
use crate::report::Report;
use crate::stats::{Spread, median, millis};

const PROCESSES: usize = 200;
const LIMIT: Duration = Duration::from_secs(1);
const LIMIT_MS: f64 = 1_000.0;
/// Stands in the command lines of what a command leaves.
const MARKER: &str = "7412.3698";
/// Attempts, for a machine too busy to start all processes in time.
const TRIES: usize = 5;

pub fn measure(report: &mut Report, cells: &Cells) {
    for (key, kind) in [
        ("case_time_sandboxed", CellExecutorKind::Sandboxed),
        ("case_time_local", CellExecutorKind::Local),
        ("case_time_container", CellExecutorKind::Container),
    ] {
        let Some(cell) = cells.started(kind, None) else {
            report.leave_out(key, "podman, runc or busybox is not installed");
            continue;
        };
        let rounds = report.pairs.div_ceil(5);
        let taken: Option<Vec<f64>> = (0..rounds).map(|_| late(&*cell)).collect();
        cell.stop();
        match taken {
            Some(taken) => {
                let late = Spread::of(taken.iter().map(|took| took - LIMIT_MS));
                report.row(key, median(taken.into_iter()), LIMIT_MS, late);
            }
            None => {
                report.leave_out(key, "the machine is too busy to start 200 processes in a second");
            }
        }
    }
}

/// Milliseconds until a command has ended whose processes all started before its limit.
fn late(cell: &dyn Executor) -> Option<f64> {
    let script = format!(
        "n=0; while [ $n -lt {PROCESSES} ]; do setsid sleep {MARKER} & n=$((n + 1)); done; echo $n; sleep 60"
    );
    let request = ExecRequest { timeout: LIMIT, ..ExecRequest::new(["sh", "-c", &script]) };
    (0..TRIES).find_map(|_| {
        let mut ended = None;
        let took = millis(|| ended = Some(cell.run(&request).unwrap()));
        let ended = ended?;
        assert_eq!(ended.outcome, "timed_out", "{ended:?}");
        assert_eq!(alive(), 0, "processes have outlived their limit");
        (ended.stdout.text == format!("{PROCESSES}\n")).then_some(took)
    })
}

/// Processes of this machine that a command has left.
fn alive() -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    // The script itself is a word of the one that runs it.
    lines.filter(|line| String::from_utf8_lossy(line).contains(MARKER)).count()
}
