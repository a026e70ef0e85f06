//! The host memory of prepared sandboxes: that of the server and of the sandboxes' groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use cofferdam_test_server::host::{Footprint, descendants, parent, resident_bytes};
use cofferdam_test_server::service::{Service, Setup, wait_until};

use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, Spread};

const STANDBYS: usize = 10;
/// Runs per client; all but the first find the workspace unchanged.
const RUNS: usize = 3;
const MIB: f64 = 1_048_576.0;
/// The number of unchanged measurements after which the server is at rest.
const LOOKS: usize = 20;
const REST_WITHIN: Duration = Duration::from_secs(30);

pub fn measure(report: &mut Report) {
    let mut pairs = Pairs::default();
    for _ in 0..report.pairs {
        pairs.push(held_mib(STANDBYS), held_mib(0));
    }
    let each = |mib: f64| mib / STANDBYS as f64;
    let Spread { lower_quartile, median, upper_quartile } = pairs.difference();
    let value = Spread {
        lower_quartile: each(lower_quartile),
        median: each(median),
        upper_quartile: each(upper_quartile),
    };
    report.row("standby_memory", pairs.first(), pairs.second(), value);
}

/// The memory of a server and its sandboxes at rest, after concurrent runs have filled a standby
/// pool of `standbys`.
fn held_mib(standbys: usize) -> f64 {
    let setup = Setup::of(bare::workspace("sleep 0.1", 10, 4096));
    let service = setup.env("STANDBY_MAX", standbys.to_string()).start();
    let run_all = || {
        let mut runner = Runner::of(&service);
        (0..RUNS).for_each(|_| _ = runner.run());
    };
    thread::scope(|scope| (0..STANDBYS).for_each(|_| _ = scope.spawn(run_all)));
    let groups = at_rest(&service, standbys);
    let charged: u64 = groups.iter().map(|group| charged_bytes(group)).sum();
    (resident_bytes(service.pid()) + charged) as f64 / MIB
}

/// The groups of the server once it has exactly `sandboxes` sandboxes, each a child process.
fn at_rest(service: &Service, sandboxes: usize) -> Vec<PathBuf> {
    let (pid, footprint) = (service.pid(), Footprint::of(service.pid()));
    let children = || descendants(pid).iter().filter(|it| parent(it.pid) == Some(pid)).count();
    let mut same = 0;
    wait_until("a full standby pool and no other sandbox", REST_WITHIN, || {
        same = if children() == sandboxes { same + 1 } else { 0 };
        same == LOOKS
    });
    footprint.cgroups()
}

/// The memory charged to a group without subgroups; zero if it counts no memory.
fn charged_bytes(group: &Path) -> u64 {
    let mut entries = fs::read_dir(group).into_iter().flatten().flatten();
    if entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        return 0;
    }
    let counted = ["memory.current", "memory.usage_in_bytes"].map(|name| group.join(name));
    let text = counted.iter().find_map(|path| fs::read_to_string(path).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
