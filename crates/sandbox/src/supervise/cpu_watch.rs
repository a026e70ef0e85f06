//! A box's CPU clock: the limit on it, and the share that goes down with age.

use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::cgroup::{CpuClass, SandboxGroup};
use cofferdam_core::values::deadline::Deadline;

/// The CPU time within which most runs are over. A box that has used more
/// stands back behind those that have not.
const YOUNG_CPU_MAX: Duration = Duration::from_millis(500);
/// The shortest pause between two looks of a box that is near its limit.
const LIMIT_LOOK_MIN: Duration = Duration::from_millis(5);
/// The shortest pause between two looks at a box's age.
const AGE_LOOK_MIN: Duration = Duration::from_millis(100);

/// How many CPUs there are: asked once, since the answer is in many files.
static CPUS: LazyLock<u32> =
    LazyLock::new(|| available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)));

/// Looks at the clock as seldom as it can: all CPUs busy with the box, it
/// reads no more than wall-clock time times their number.
#[derive(Debug)]
pub struct CpuWatch {
    cpu_max: Option<Duration>,
    born: bool,
    young: bool,
    next_look: Option<Deadline>,
}

impl CpuWatch {
    /// For a box whose processes may use so much CPU time together, none so far.
    pub fn new(cpu_max: Option<Duration>) -> Self {
        let mut watch = Self { cpu_max, born: false, young: true, next_look: None };
        watch.next_look = watch.pause(Duration::ZERO).map(Deadline::after);
        watch
    }

    /// From now on the box has the tenant's weight, no longer ours.
    pub fn program_began(&mut self, group: Option<&SandboxGroup>) {
        if !std::mem::replace(&mut self.born, true)
            && let Some(group) = group
        {
            group.set_cpu_class(CpuClass::Short);
        }
    }

    /// When the next look is due, if one is.
    pub fn next_look(&self) -> Option<Deadline> {
        self.next_look
    }

    /// Looks, if it is time; true once the limit is reached.
    pub fn limit_reached(&mut self, group: Option<&SandboxGroup>) -> bool {
        if self.next_look.is_none_or(|look| !look.passed()) {
            return false;
        }
        self.next_look = None;
        let Some((group, used)) = group.and_then(|group| Some((group, group.cpu_time()?))) else {
            // A clock that nobody keeps now will not be kept later.
            return false;
        };
        if self.young && used >= YOUNG_CPU_MAX {
            self.young = false;
            group.set_cpu_class(CpuClass::Long);
        }
        if self.cpu_max.is_some_and(|max| used >= max) {
            return true;
        }
        self.next_look = self.pause(used).map(Deadline::after);
        false
    }

    /// How long neither figure can be reached, having used so much.
    fn pause(&self, used: Duration) -> Option<Duration> {
        let until = |max: Duration| max.saturating_sub(used) / *CPUS;
        let limit = self.cpu_max.map(|max| until(max).max(LIMIT_LOOK_MIN));
        let age = self.young.then(|| until(YOUNG_CPU_MAX).max(AGE_LOOK_MIN));
        limit.into_iter().chain(age).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_when_a_figure_can_be_reached_and_not_long_before() {
        let cpus = u32::try_from(available_parallelism().unwrap().get()).unwrap();
        let ms = Duration::from_millis;
        for (cpu_max, young, used, pause) in [
            (None, true, ms(0), Some((ms(500) / cpus).max(AGE_LOOK_MIN))),
            (None, true, ms(499), Some(AGE_LOOK_MIN)),
            (None, false, ms(5000), None),
            (Some(ms(8000)), false, ms(5000), Some(ms(3000) / cpus)),
            (Some(ms(8000)), false, ms(7999), Some(LIMIT_LOOK_MIN)),
            (Some(ms(10)), true, ms(9), Some(LIMIT_LOOK_MIN)),
            (Some(ms(60_000)), true, ms(0), Some((ms(500) / cpus).max(AGE_LOOK_MIN))),
        ] {
            let watch = CpuWatch { cpu_max, born: true, young, next_look: None };
            assert_eq!(watch.pause(used), pause, "{cpu_max:?} {young} {used:?}");
        }
    }

    #[test]
    fn without_a_clock_nothing_is_reached_and_nobody_looks_again() {
        let mut watch = CpuWatch::new(Some(Duration::ZERO));
        std::thread::sleep(watch.next_look().unwrap().remaining());
        assert!(!watch.limit_reached(None));
        assert!(watch.next_look().is_none());
    }
}
