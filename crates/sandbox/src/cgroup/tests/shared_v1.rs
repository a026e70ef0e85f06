//! Version 1 as distributions mount it, with controllers sharing hierarchies, on a fake kernel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::fake_kernel::FakeKernel;
use crate::cgroup::control::CgroupVersion;
use crate::cgroup::directory::CgroupFs;
use crate::cgroup::layout::{CgroupLayout, V1Hierarchy};
use crate::cgroup::limit_files::CpuClass;
use crate::cgroup::tree::CgroupTree;
use cofferdam_core::Limits;

fn hierarchy(controllers: &[&str], own: &Path) -> V1Hierarchy {
    let controllers = controllers.iter().map(|c| (*c).to_owned()).collect();
    V1Hierarchy { controllers, place: Ok(own.to_owned()) }
}

/// cpu and cpuacct together, no freezer, no pids, no unified hierarchy.
fn open(kernel: &Arc<FakeKernel>) -> CgroupTree {
    for own in ["v1/memory", "v1/cpu,cpuacct"] {
        kernel.foreign_group(own, "");
    }
    let v1 = vec![
        hierarchy(&["memory"], &kernel.path("v1/memory")),
        hierarchy(&["cpu", "cpuacct"], &kernel.path("v1/cpu,cpuacct")),
    ];
    let layout = CgroupLayout { v1, v2: Err("not mounted") };
    let calls: Arc<dyn CgroupFs> = Arc::clone(kernel) as Arc<dyn CgroupFs>;
    CgroupTree::open_on(&layout, true, &calls, "t").unwrap()
}

#[test]
fn a_shared_hierarchy_gets_one_directory_and_every_limit_its_writes() {
    let kernel = FakeKernel::new("");
    let tree = open(&kernel);
    assert_eq!(kernel.calls(), ["mkdir v1/memory/cofferdam-t", "mkdir v1/cpu,cpuacct/cofferdam-t"]);
    let limits =
        Limits { memory_bytes_max: 1 << 26, cpus_milli_max: Some(500), ..Limits::default() };
    let mut made = tree.create("b1", &limits).unwrap();
    assert_eq!(
        kernel.calls(),
        [
            "mkdir v1/memory/cofferdam-t/b1",
            "v1/memory/cofferdam-t/b1/memory.limit_in_bytes=67108864",
            "v1/memory/cofferdam-t/b1/memory.memsw.limit_in_bytes=67108864",
            "v1/memory/cofferdam-t/b1/memory.kmem.tcp.limit_in_bytes=8388608",
            "mkdir v1/cpu,cpuacct/cofferdam-t/b1",
            "v1/cpu,cpuacct/cofferdam-t/b1/cpu.shares=10240",
            "v1/cpu,cpuacct/cofferdam-t/b1/cpu.cfs_period_us=100000",
            "v1/cpu,cpuacct/cofferdam-t/b1/cpu.cfs_quota_us=50000",
        ]
    );
    made.set_cpu_class(CpuClass::Long);
    assert_eq!(kernel.calls(), ["v1/cpu,cpuacct/cofferdam-t/b1/cpu.shares=256"]);
    assert_eq!((made.task_files().len(), made.program_task_files().len()), (1, 1));
    assert_eq!(made.cpu_time(), Some(Duration::from_micros(2_500)));
    made.remove(cofferdam_core::values::deadline::Deadline::after(Duration::ZERO)).unwrap();
}

#[test]
fn missing_controls_are_reported_and_a_kill_without_one_returns_false() {
    let kernel = FakeKernel::new("");
    let tree = open(&kernel);
    let support = tree.support();
    let missing = Some("cgroup2: not mounted; cgroup1: not mounted".to_owned());
    for control in [&support.processes, &support.kill] {
        assert_eq!((control.by, &control.reason), (None, &missing));
    }
    assert_eq!(support.cpu.by, Some(CgroupVersion::V1));
    let made = tree.create("b1", &Limits::default()).unwrap();
    assert!(!made.kill().unwrap());
    assert_eq!(made.usage(true).processes_peak, None);
}

#[test]
fn a_kernel_without_swap_or_socket_accounting_limits_memory_and_reports_the_gap() {
    for missing in ["memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"] {
        let kernel = FakeKernel::new("");
        kernel.without(missing);
        let tree = open(&kernel);
        assert_eq!(tree.support().memory.by, Some(CgroupVersion::V1));
        let reason = tree.support().memory.reason.clone().unwrap();
        assert!(reason.contains(missing), "{reason}");
        tree.create("b1", &Limits::default()).unwrap();
    }
}
