//! A small command in a Cell, compared with a run of the service and with other executors.

use cofferdam::cases::{CellExecutorKind, Executor};
use cofferdam_test_server::service::Setup;

use super::scene::{Cells, sh};
use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, millis};

const FILES: usize = 10;

pub fn measure(report: &mut Report, cells: &Cells) {
    let source = cells.source(FILES);
    let sandboxed = cells.started(CellExecutorKind::Sandboxed, Some(&source)).unwrap();
    let prepared = cells.prepared(&source);
    // The service as it is, which prepares sandboxes, and one that prepares none.
    for (key, standby_max) in [("case_run_prepared", None), ("case_run_new", Some("0"))] {
        let setup = Setup::of(bare::workspace(":", FILES, 1000));
        let setup = match standby_max {
            Some(standby_max) => setup.env("STANDBY_MAX", standby_max),
            None => setup,
        };
        let service = setup.start();
        let mut runner = Runner::of(&service);
        let plain = || millis(|| _ = runner.run());
        let cell: &dyn Executor = if standby_max.is_none() { &prepared } else { &*sandboxed };
        report.paired(key, &Pairs::take(report.pairs, || nothing(cell), plain));
    }
    prepared.stop();
    for (key, kind) in [
        ("case_run_local", CellExecutorKind::Local),
        ("case_run_container", CellExecutorKind::Container),
    ] {
        let Some(cell) = cells.started(kind, Some(&source)) else {
            report.leave_out(key, "podman, runc or busybox is not installed");
            continue;
        };
        let ours = || nothing(&*sandboxed);
        report.paired(key, &Pairs::take(report.pairs, || nothing(&*cell), ours));
        cell.stop();
    }
    sandboxed.stop();
}

/// How long a command takes that does nothing.
fn nothing(cell: &dyn Executor) -> f64 {
    let mut ended = None;
    let took = millis(|| ended = Some(sh(cell, ":")));
    assert_eq!(ended.unwrap().exit_code, Some(0));
    took
}
