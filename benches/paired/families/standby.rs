//! What boxes made ahead hold of the host's memory: the server's own and that of the boxes' groups.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::server::host::{Footprint, resident_bytes};
use crate::server::service::{Setup, wait_until};
use crate::stats::{Pairs, Spread};

const STANDBYS: usize = 10;
const RUNS: usize = 20;
const MIB: f64 = 1_048_576.0;
/// As many looks without a change say that the server has come to rest.
const LOOKS: usize = 20;
const REST_WITHIN: Duration = Duration::from_secs(5);

pub fn measure(report: &mut Report) {
    let mut pairs = Pairs::default();
    for _ in 0..report.pairs.div_ceil(10) {
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

/// What a server and its boxes hold at rest, after some runs.
fn held_mib(standbys: usize) -> f64 {
    let setup = Setup::of(bare::workspace(":", 10, 4096));
    let service = setup.env("STANDBY_MAX", standbys.to_string()).start();
    let mut runner = Runner::of(&service);
    for _ in 0..RUNS {
        runner.run();
    }
    let footprint = Footprint::of(service.pid());
    let (mut boxes, mut same) = (0, 0);
    wait_until("as many boxes as before", REST_WITHIN, || {
        let now = footprint.cgroups().len();
        same = if now == boxes { same + 1 } else { 0 };
        boxes = now;
        same == LOOKS
    });
    let groups: u64 = footprint.cgroups().iter().map(|group| charged_bytes(group)).sum();
    (resident_bytes(service.pid()) + groups) as f64 / MIB
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
