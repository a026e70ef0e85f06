//! What boxes made ahead hold of the host's memory: the server's own and that of the boxes' groups.

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
/// Each client's; all but the first find the workspace at rest.
const RUNS: usize = 3;
const MIB: f64 = 1_048_576.0;
/// As many looks without a change say that the server has come to rest.
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

/// What a server and its boxes hold at rest, when as many runs at once have made it have `standbys`.
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

/// The groups of the server once it has neither more nor fewer than `boxes`, each a child of its own.
fn at_rest(service: &Service, boxes: usize) -> Vec<PathBuf> {
    let (pid, footprint) = (service.pid(), Footprint::of(service.pid()));
    let children = || descendants(pid).iter().filter(|it| parent(it.pid) == Some(pid)).count();
    let mut same = 0;
    wait_until("all boxes made ahead, and no other", REST_WITHIN, || {
        same = if children() == boxes { same + 1 } else { 0 };
        same == LOOKS
    });
    footprint.cgroups()
}

/// What a group without groups below it is charged; zero where it counts no memory.
fn charged_bytes(group: &Path) -> u64 {
    let mut entries = fs::read_dir(group).into_iter().flatten().flatten();
    if entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        return 0;
    }
    let counted = ["memory.current", "memory.usage_in_bytes"].map(|name| group.join(name));
    let text = counted.iter().find_map(|path| fs::read_to_string(path).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
