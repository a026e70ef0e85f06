//! The process limits that this process inherited.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::plan::steps::process::Rlimit;
use cofferdam_core::Limits;

/// Limits that a program would otherwise inherit from the service: no raised priority, and the
/// default amounts of kernel memory.
const FIXED_LIMITS: [(Rlimit, Resource, u64); 6] = [
    (Rlimit::Nice, Resource::RLIMIT_NICE, 0),
    (Rlimit::RealtimePriority, Resource::RLIMIT_RTPRIO, 0),
    (Rlimit::RealtimeTime, Resource::RLIMIT_RTTIME, 1_000_000),
    (Rlimit::LockedMemory, Resource::RLIMIT_MEMLOCK, 8 << 20),
    (Rlimit::MessageQueues, Resource::RLIMIT_MSGQUEUE, 819_200),
    (Rlimit::PendingSignals, Resource::RLIMIT_SIGPENDING, 4096),
];

/// The hard limits that this process inherited. No limit of a run can exceed them.
#[derive(Debug, Clone, Copy)]
pub struct HardLimits {
    open_files: u64,
    processes: u64,
    cpu_seconds: u64,
    file_bytes: u64,
    fixed: [(Rlimit, u64); FIXED_LIMITS.len()],
}

impl HardLimits {
    /// Reads the limits of this process.
    pub fn read() -> std::io::Result<Self> {
        let mut fixed = FIXED_LIMITS.map(|(limit, _, value)| (limit, value));
        for ((_, value), (_, resource, _)) in fixed.iter_mut().zip(FIXED_LIMITS) {
            *value = getrlimit(resource)?.1.min(*value);
        }
        Ok(Self {
            fixed,
            open_files: getrlimit(Resource::RLIMIT_NOFILE)?.1,
            processes: getrlimit(Resource::RLIMIT_NPROC)?.1,
            file_bytes: getrlimit(Resource::RLIMIT_FSIZE)?.1,
            cpu_seconds: match getrlimit(Resource::RLIMIT_CPU)?.1 {
                RLIM_INFINITY => RLIM_INFINITY,
                // The hard limit is one above the soft limit, so that SIGXCPU comes before SIGKILL.
                seconds => seconds.saturating_sub(1),
            },
        })
    }

    /// The limits that are the same for every run, as far as they can be set.
    pub fn fixed(&self) -> &[(Rlimit, u64)] {
        &self.fixed
    }

    /// The most processes that any limit can allow.
    pub fn processes(&self) -> u64 {
        self.processes
    }

    /// The inherited hard limit of CPU seconds.
    pub fn cpu_seconds_hard(&self) -> u64 {
        match self.cpu_seconds {
            RLIM_INFINITY => RLIM_INFINITY,
            soft => soft.saturating_add(1),
        }
    }

    /// Lowers `limits` to what can be set, and notes each change.
    pub fn clamp(self, limits: &mut Limits, notes: &mut Vec<String>) {
        for (name, wanted, hard) in [
            ("open files", &mut limits.open_files_max, self.open_files),
            ("processes", &mut limits.processes_max, self.processes),
            ("CPU seconds", &mut limits.cpu_seconds_max, self.cpu_seconds),
            ("bytes of a file", &mut limits.file_bytes_max, self.file_bytes),
        ] {
            if *wanted > hard {
                notes.push(format!("{name}: {wanted} lowered to the inherited hard limit {hard}"));
                *wanted = hard;
            }
        }
    }
}
