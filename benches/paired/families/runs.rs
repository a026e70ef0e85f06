//! `POST /run` compared with the bare `make test` of the same workspace.

use cofferdam_test_server::service::Setup;
use cofferdam_test_server::workspace::Workspace;

use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, millis};

const SMALL_BYTES: usize = 4096;
/// 1,000 files of this size are 20 MB.
const LARGE_BYTES: usize = 20_000;

pub fn measure(report: &mut Report) {
    let rows = [
        ("run_10", bare::workspace(":", 10, SMALL_BYTES)),
        ("run_program", bare::workspace("/bin/true", 10, SMALL_BYTES)),
        ("run_1000", bare::workspace(":", 1_000, LARGE_BYTES)),
        ("run_python", bare::workspace("python3 -c pass", 10, SMALL_BYTES)),
    ];
    for (key, workspace) in rows {
        let pairs = beside_bare(workspace, report.pairs);
        report.paired(key, &pairs);
    }
}

/// Compares runs in `workspace` (A) with its bare `make test` (B).
pub fn beside_bare(workspace: Workspace, pairs: usize) -> Pairs {
    let service = Setup::of(workspace).start();
    let mut runner = Runner::of(&service);
    let path = service.workspace().path();
    Pairs::take(pairs, || millis(|| _ = runner.run()), || millis(|| bare::make_test(path)))
}
