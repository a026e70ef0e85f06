//! The controls of sandboxes, as reports and metrics name them.

use std::collections::BTreeSet;

use crate::cgroup::{CgroupSupport, CgroupVersion, ControlSupport};
use cofferdam_core::Enforced;
use cofferdam_seccomp::profile::Profile;

/// All controls. `not_enforced` uses the same names for those that a host lacks.
const CONTROLS: [&str; 8] =
    ["cpu", "disk", "landlock", "memory", "namespaces", "processes", "seccomp", "uid"];

/// Every control, and whether it is enforced: not named in `not_enforced`, whose entries are a name
/// and a reason.
pub fn controls(not_enforced: &[String]) -> Vec<(String, bool)> {
    let names = not_enforced.iter().filter_map(|gap| gap.split_once(": "));
    let missing: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    let all: BTreeSet<&str> = CONTROLS.into_iter().chain(missing.iter().copied()).collect();
    all.into_iter().map(|name| (name.to_owned(), !missing.contains(name))).collect()
}

/// The controls of every sandbox with this profile and these cgroups.
pub fn enforced(profile: &Profile, support: &CgroupSupport) -> Enforced {
    let version = |control: &ControlSupport| control.by.map(CgroupVersion::word);
    Enforced {
        namespaces: vec!["pid", "mount", "ipc", "uts", "net", "cgroup"],
        seccomp: Some(profile.name.clone()),
        memory: version(&support.memory),
        processes: Some(match version(&support.processes) {
            Some("cgroup2") => "cgroup2+rlimit",
            Some(_) => "cgroup1+rlimit",
            None => "rlimit",
        }),
        disk: Some("tmpfs"),
        cpu: version(&support.cpu),
    }
}

/// The controls that cgroups do not provide here, with the reasons.
pub fn missing_controls(support: &CgroupSupport) -> impl Iterator<Item = String> {
    let controls =
        [("memory", &support.memory), ("processes", &support.processes), ("cpu", &support.cpu)];
    let missing = controls.into_iter().filter(|(_, control)| control.by.is_none());
    missing.map(|(name, control)| {
        let reason = control.reason.as_deref().unwrap_or("no cgroup controller");
        format!("{name}: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_that_is_not_enforced_is_never_reported_as_enforced() {
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
