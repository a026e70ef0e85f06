//! Watches the CPU time of a sandbox: its limit, and the weight that falls as it grows.

use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::cgroup::{CpuClass, SandboxGroup};
use cofferdam_core::values::deadline::Deadline;

/// Most runs use less CPU time than this. A sandbox that has used more gets a lower weight than the
/// others.
const SHORT_RUN_CPU_MAX: Duration = Duration::from_millis(500);
/// The shortest pause between two checks of a sandbox near its limit.
const LIMIT_CHECK_MIN: Duration = Duration::from_millis(5);
/// The shortest pause between two checks for [`SHORT_RUN_CPU_MAX`].
const CLASS_CHECK_MIN: Duration = Duration::from_millis(100);

/// The number of CPUs. Read once: the answer comes from many files.
static CPUS: LazyLock<u32> =
    LazyLock::new(|| available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)));

/// Reads the CPU clock as rarely as possible: with all CPUs busy, the clock advances at most by
/// wall-clock time times the number of CPUs.
#[derive(Debug)]
pub struct CpuWatch {
    cpu_max: Option<Duration>,
    /// The CPU time that does not count.
    before: Duration,
    program_began: bool,
    is_short: bool,
    next_check: Option<Deadline>,
}

impl CpuWatch {
    /// For a new sandbox whose processes may use `cpu_max` together, or one whose program has begun
    /// and used `before`, which does not count.
    pub fn new(cpu_max: Option<Duration>, before: Option<Duration>) -> Self {
        let mut watch = Self {
            cpu_max,
            before: before.unwrap_or_default(),
            program_began: before.is_some(),
            is_short: true,
            next_check: None,
        };
        watch.next_check = watch.pause(Duration::ZERO).map(Deadline::after);
        watch
    }

    /// Gives the sandbox the weight of a tenant. Until now it had the weight of the supervisor's
    /// own work.
    pub fn program_began(&mut self, group: Option<&SandboxGroup>) {
        if !std::mem::replace(&mut self.program_began, true)
            && let Some(group) = group
        {
            group.set_cpu_class(CpuClass::Short);
        }
    }

    /// When the next check is due, if one is.
    pub fn next_check(&self) -> Option<Deadline> {
        self.next_check
    }

    /// Checks the clock if a check is due. True once the limit is reached.
    pub fn limit_reached(&mut self, group: Option<&SandboxGroup>) -> bool {
        if self.next_check.is_none_or(|check| !check.passed()) {
            return false;
        }
        self.next_check = None;
        let Some((group, used)) = group.and_then(|group| Some((group, group.cpu_time()?))) else {
            // Without a CPU clock now there will be none later.
            return false;
        };
        let used = used.saturating_sub(self.before);
        if self.is_short && used >= SHORT_RUN_CPU_MAX {
            self.is_short = false;
            group.set_cpu_class(CpuClass::Long);
        }
        if self.cpu_max.is_some_and(|max| used >= max) {
            return true;
        }
        self.next_check = self.pause(used).map(Deadline::after);
        false
    }

    /// How long neither threshold can be reached after `used`.
    fn pause(&self, used: Duration) -> Option<Duration> {
        let until = |max: Duration| max.saturating_sub(used) / *CPUS;
        let limit = self.cpu_max.map(|max| until(max).max(LIMIT_CHECK_MIN));
        let class = self.is_short.then(|| until(SHORT_RUN_CPU_MAX).max(CLASS_CHECK_MIN));
        limit.into_iter().chain(class).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_due_when_a_threshold_can_be_reached_and_not_long_before() {
        let cpus = u32::try_from(available_parallelism().unwrap().get()).unwrap();
        let ms = Duration::from_millis;
        for (cpu_max, is_short, used, pause) in [
            (None, true, ms(0), Some((ms(500) / cpus).max(CLASS_CHECK_MIN))),
            (None, true, ms(499), Some(CLASS_CHECK_MIN)),
            (None, false, ms(5000), None),
            (Some(ms(8000)), false, ms(5000), Some(ms(3000) / cpus)),
            (Some(ms(8000)), false, ms(7999), Some(LIMIT_CHECK_MIN)),
            (Some(ms(10)), true, ms(9), Some(LIMIT_CHECK_MIN)),
            (Some(ms(60_000)), true, ms(0), Some((ms(500) / cpus).max(CLASS_CHECK_MIN))),
        ] {
            let watch = CpuWatch {
                cpu_max,
                before: Duration::ZERO,
                program_began: true,
                is_short,
                next_check: None,
            };
            assert_eq!(watch.pause(used), pause, "{cpu_max:?} {is_short} {used:?}");
        }
    }

    #[test]
    fn without_a_cpu_clock_no_limit_is_reached_and_no_check_follows() {
        let mut watch = CpuWatch::new(Some(Duration::ZERO), None);
        std::thread::sleep(watch.next_check().unwrap().remaining());
        assert!(!watch.limit_reached(None));
        assert!(watch.next_check().is_none());
    }
}
