//! What a thousand idle workspaces cost.

use std::fs;
use std::thread;
use std::time::Duration;

use cofferdam_test_server::host::{descendants, mounts, resident_bytes};
use cofferdam_test_server::service::Setup;
use serde_json::json;

use super::scene::Engine;
use crate::report::Report;
use crate::stats::Spread;

const WORKSPACES: usize = 1_000;
/// Created and deleted before, so that the service has the memory that it keeps.
const WARM_UP: usize = 50;
/// What the kernel takes for a mount, an inode, a file in memory.
const KERNEL: [&str; 4] = ["Slab", "Percpu", "Shmem", "PageTables"];
/// For what is freed behind the answers.
const REST: Duration = Duration::from_secs(1);
const KIB: f64 = 1024.0;

pub fn measure(report: &mut Report) {
    let mut engine = Engine::start(Setup::shell());
    let made: Vec<String> = (0..WARM_UP).map(|_| engine.create(&json!({}))).collect();
    made.iter().for_each(|workspace| engine.delete(workspace));
    let pid = engine.service.pid();
    thread::sleep(REST);
    let visible = mounts(pid);
    let before = [resident_bytes(pid), kernel_bytes()];
    for _ in 0..WORKSPACES {
        engine.create(&json!({}));
    }
    thread::sleep(REST);
    let after = [resident_bytes(pid), kernel_bytes()];
    assert!(descendants(pid).is_empty(), "an idle workspace has a process");
    assert_eq!(mounts(pid), visible, "an idle workspace has a visible mount");
    let each = |bytes: u64| bytes as f64 / KIB / WORKSPACES as f64;
    let [service, kernel] = [0, 1].map(|part| each(after[part].saturating_sub(before[part])));
    let alone = |value| Spread::of([value].into_iter());
    report.row("engine_idle_service", each(after[0]), each(before[0]), alone(service));
    let both = service + kernel;
    report.row("engine_idle_kernel", both, service, alone(both));
}

/// The memory of the kernel's own on this machine, which others change as well.
fn kernel_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let counted = lines.filter(|(name, _)| KERNEL.contains(name));
    let kibibytes = |value: &str| value.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
    counted.map(|(_, value)| kibibytes(value) * 1024).sum()
}
