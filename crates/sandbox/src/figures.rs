//! What a sandbox has counted, and what it holds.

use std::collections::BTreeSet;

use crate::launch::setup::Sandbox;
use crate::supervise::cleanup::queue::BACKLOG_MAX;
use crate::supervise::cleanup::undying::UNDYING_MAX;
use cofferdam_core::SandboxMetrics;

/// The controls there are. Those a host may lack have these names in `not_enforced` too.
const CONTROLS: [&str; 8] =
    ["cpu", "disk", "landlock", "memory", "namespaces", "processes", "seccomp", "uid"];

impl Sandbox {
    /// The figures now.
    pub fn figures(&self) -> SandboxMetrics {
        SandboxMetrics {
            kill_failures: self.kill_failures.count(),
            undying: self.cleanup.undying().count(),
            undying_max: UNDYING_MAX,
            cleanup_backlog: self.cleanup.backlog(),
            cleanup_backlog_max: BACKLOG_MAX,
            swept: self.swept,
            controls: controls(self.not_enforced()),
        }
    }
}

/// Every control, and whether `not_enforced` (each entry its name and the reason) lacks it.
fn controls(not_enforced: &[String]) -> Vec<(String, bool)> {
    let names = not_enforced.iter().filter_map(|gap| gap.split_once(": "));
    let missing: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    let all: BTreeSet<&str> = CONTROLS.into_iter().chain(missing.iter().copied()).collect();
    all.into_iter().map(|name| (name.to_owned(), !missing.contains(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_enforced_is_never_said_to_be_whatever_its_name() {
        let gaps = ["memory: no cgroup controller", "uid: no user namespace (x: y)", "new: z"];
        let found = controls(&gaps.map(str::to_owned));
        let of = |enforced: bool| -> Vec<&str> {
            let named = found.iter().filter(|(_, is)| *is == enforced);
            named.map(|(name, _)| name.as_str()).collect()
        };
        assert_eq!(of(false), ["memory", "new", "uid"]);
        assert_eq!(of(true), ["cpu", "disk", "landlock", "namespaces", "processes", "seccomp"]);
    }
}
