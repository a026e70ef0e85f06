//! The text written to each file of a group for the limits of a sandbox.

use super::control::{CgroupControl, CgroupVersion};
use cofferdam_core::Limits;

/// The init lives in the group and does not count as a process of the tenant.
pub(super) const INIT_PROCESSES: u64 = 1;

/// The highest value that the kernel accepts for `pids.max` (`PID_MAX_LIMIT`).
const PROCESSES_MAX: u64 = 4_194_304;

/// The highest value that the kernel accepts for a CPU quota: 44 bits of microseconds.
const QUOTA_US_MAX: u64 = (1 << 44) - 1;

/// A write that sets a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitFile {
    pub(super) file: &'static str,
    pub(super) text: String,
    /// Whether a kernel may lack the file: a kernel without swap accounting has no file to limit
    /// swap. `CgroupTree` reports the consequence.
    pub(super) optional: bool,
}

impl LimitFile {
    fn required(file: &'static str, text: String) -> Self {
        Self { file, text, optional: false }
    }

    fn optional(file: &'static str, text: String) -> Self {
        Self { file, text, optional: true }
    }
}

/// The writes for `control`, in the order the kernel requires. Defaults of a new group are not
/// written (`memory.high` max; `memory.oom.group` 0: one process dies, and the program sees it).
pub(super) fn limit_files(
    version: CgroupVersion,
    control: CgroupControl,
    limits: &Limits,
) -> Vec<LimitFile> {
    let memory = limits.memory_bytes_max.to_string();
    match (control, version) {
        // Memory plus swap may not be less than memory: it comes second.
        (CgroupControl::Memory, CgroupVersion::V1) => vec![
            LimitFile::required("memory.limit_in_bytes", memory.clone()),
            LimitFile::optional(V1_SWAP_FILE, memory),
            LimitFile::optional(V1_SOCKETS_FILE, socket_bytes(limits).to_string()),
        ],
        (CgroupControl::Memory, CgroupVersion::V2) => vec![
            LimitFile::required("memory.max", memory),
            LimitFile::optional(V2_SWAP_FILE, "0".to_owned()),
        ],
        (CgroupControl::Processes, _) => {
            vec![LimitFile::required("pids.max", processes(limits.processes_max))]
        }
        (CgroupControl::Cpu, _) => {
            let mut files = vec![cpu_weight(version, CpuClass::Setup)];
            files.extend(limits.cpus_milli_max.map_or_else(Vec::new, |m| cpu_quota(version, m)));
            files
        }
        (CgroupControl::CpuTime | CgroupControl::Kill, _) => Vec::new(),
    }
}

/// The write that lifts the CPU quota.
pub(super) fn all_cpus(version: CgroupVersion) -> LimitFile {
    match version {
        CgroupVersion::V1 => LimitFile::required("cpu.cfs_quota_us", "-1".to_owned()),
        CgroupVersion::V2 => LimitFile::required("cpu.max", "max".to_owned()),
    }
}

/// The phase of a sandbox, which decides its weight on busy CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClass {
    /// Being created by the supervisor. Callers wait for that.
    Setup,
    /// Its program starts ahead of a run. No client waits, so the weight is the lowest that the kernel allows.
    Prestart,
    /// Its program has begun.
    Short,
    /// Its program has used more CPU time than most runs need.
    Long,
    /// Killed: other runs wait for its resources.
    Dying,
    /// Killed, and not dead in time: as low as `Long`.
    Undying,
}

/// The write that sets the weight: a sandbox in class `Short` has four times the weight of one in
/// class `Long`.
pub(super) fn cpu_weight(version: CgroupVersion, class: CpuClass) -> LimitFile {
    let percent = match class {
        CpuClass::Setup | CpuClass::Dying => 1000,
        CpuClass::Prestart => 1,
        CpuClass::Short => 100,
        CpuClass::Long | CpuClass::Undying => 25,
    };
    match version {
        CgroupVersion::V1 => {
            LimitFile::required("cpu.shares", (V1_SHARES * percent / 100).to_string())
        }
        CgroupVersion::V2 => LimitFile::required(V2_WEIGHT_FILE, percent.to_string()),
    }
}

fn cpu_quota(version: CgroupVersion, cpus_milli: u64) -> Vec<LimitFile> {
    let (quota, period) = quota_and_period_us(cpus_milli);
    match version {
        CgroupVersion::V1 => vec![
            LimitFile::required("cpu.cfs_period_us", period.to_string()),
            LimitFile::required("cpu.cfs_quota_us", quota.to_string()),
        ],
        CgroupVersion::V2 => vec![LimitFile::required("cpu.max", format!("{quota} {period}"))],
    }
}

/// The default of version 1.
const V1_SHARES: u64 = 1024;

/// The CPU weight of a version 2 group, from 1 to 10000; 100 by default.
pub(super) const V2_WEIGHT_FILE: &str = "cpu.weight";
/// The highest weight that the kernel accepts.
pub(super) const WEIGHT_MAX: &str = "10000";
/// The file that keeps a version 1 sandbox out of swap.
pub(super) const V1_SWAP_FILE: &str = "memory.memsw.limit_in_bytes";
/// The file that keeps a version 2 sandbox out of swap.
pub(super) const V2_SWAP_FILE: &str = "memory.swap.max";

/// The file that limits the socket memory of a version 1 sandbox. Version 1 accounts socket memory
/// separately, without a limit by default.
pub(super) const V1_SOCKETS_FILE: &str = "memory.kmem.tcp.limit_in_bytes";

/// The socket memory of a sandbox, as a divisor of its memory limit.
const SOCKETS_SHARE: u64 = 8;

fn socket_bytes(limits: &Limits) -> u64 {
    limits.memory_bytes_max / SOCKETS_SHARE
}

fn processes(tenant_max: u64) -> String {
    match tenant_max.saturating_add(INIT_PROCESSES) {
        max if max > PROCESSES_MAX => "max".to_owned(),
        max => max.to_string(),
    }
}

/// The kernel accepts no quota under 1 ms, so a tiny share needs the longest period.
fn quota_and_period_us(cpus_milli: u64) -> (u64, u64) {
    let period_us = if cpus_milli < 10 { 1_000_000 } else { 100_000 };
    let quota_us = cpus_milli.saturating_mul(period_us / 1_000);
    (quota_us.min(QUOTA_US_MAX), period_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        version: CgroupVersion,
        control: CgroupControl,
        limits: &Limits,
    ) -> Vec<(&str, String)> {
        limit_files(version, control, limits).into_iter().map(|w| (w.file, w.text)).collect()
    }

    #[test]
    fn memory_bounds_exclude_swap_and_cover_sockets() {
        let limits = Limits { memory_bytes_max: 65_536, ..Limits::default() };
        assert_eq!(
            written(CgroupVersion::V1, CgroupControl::Memory, &limits),
            [
                ("memory.limit_in_bytes", "65536".into()),
                ("memory.memsw.limit_in_bytes", "65536".into()),
                ("memory.kmem.tcp.limit_in_bytes", "8192".into())
            ]
        );
        assert_eq!(
            written(CgroupVersion::V2, CgroupControl::Memory, &limits),
            [("memory.max", "65536".into()), ("memory.swap.max", "0".into())]
        );
    }

    #[test]
    fn our_init_is_not_counted_among_the_tenants_processes() {
        let table =
            [(256, "257"), (0, "1"), (4_194_303, "4194304"), (4_194_304, "max"), (u64::MAX, "max")];
        for (tenant_max, text) in table {
            let limits = Limits { processes_max: tenant_max, ..Limits::default() };
            for version in [CgroupVersion::V1, CgroupVersion::V2] {
                assert_eq!(
                    written(version, CgroupControl::Processes, &limits),
                    [("pids.max", text.to_owned())]
                );
            }
        }
    }

    #[test]
    fn every_share_of_the_cpus_is_a_quota_the_kernel_takes() {
        let table = [
            (1, 1_000, 1_000_000),
            (9, 9_000, 1_000_000),
            (10, 1_000, 100_000),
            (1_500, 150_000, 100_000),
            (u64::MAX, QUOTA_US_MAX, 100_000),
        ];
        for (milli, quota, period) in table {
            let limits = Limits { cpus_milli_max: Some(milli), ..Limits::default() };
            assert_eq!(
                written(CgroupVersion::V2, CgroupControl::Cpu, &limits),
                [("cpu.weight", "1000".into()), ("cpu.max", format!("{quota} {period}"))]
            );
            assert_eq!(
                written(CgroupVersion::V1, CgroupControl::Cpu, &limits),
                [
                    ("cpu.shares", "10240".into()),
                    ("cpu.cfs_period_us", period.to_string()),
                    ("cpu.cfs_quota_us", quota.to_string())
                ]
            );
        }
    }

    #[test]
    fn without_a_cpu_limit_there_is_a_weight_and_no_quota() {
        for (version, file, weight) in
            [(CgroupVersion::V1, "cpu.shares", "10240"), (CgroupVersion::V2, "cpu.weight", "1000")]
        {
            let limits = Limits::default();
            let written = written(version, CgroupControl::Cpu, &limits);
            assert_eq!(written, [(file, weight.to_owned())]);
        }
    }

    #[test]
    fn a_long_run_weighs_less_than_a_short_one() {
        let text = |version, age| cpu_weight(version, age).text;
        assert_eq!(text(CgroupVersion::V1, CpuClass::Short), "1024");
        assert_eq!(text(CgroupVersion::V1, CpuClass::Long), "256");
        assert_eq!(text(CgroupVersion::V2, CpuClass::Short), "100");
        assert_eq!(text(CgroupVersion::V2, CpuClass::Long), "25");
    }

    #[test]
    fn a_dying_sandbox_weighs_more_than_a_running_one_but_an_undying_one_does_not() {
        let text = |age| cpu_weight(CgroupVersion::V2, age).text;
        assert_eq!([text(CpuClass::Dying), text(CpuClass::Undying)], ["1000", "25"]);
    }
}
