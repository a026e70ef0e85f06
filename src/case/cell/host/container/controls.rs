//! What a container enforces, as the helper in it sees it.

use std::collections::BTreeMap;

use super::order::ContainerFacts;
use crate::case::cell::error::ExecError;
use crate::case::cell::plan::StepLimits;
use cofferdam_core::Enforced;

/// The words for namespaces, and the kernel's.
const NAMESPACES: [(&str, &str); 6] = [
    ("pid", "pid"),
    ("mount", "mnt"),
    ("ipc", "ipc"),
    ("uts", "uts"),
    ("net", "net"),
    ("cgroup", "cgroup"),
];
/// Namespaces that keep a command from seeing or reaching anything outside its Cell.
const NAMESPACES_NEEDED: [&str; 4] = ["pid", "mount", "ipc", "net"];
/// The filter of system calls is the engine's own.
const PROFILE: &str = "engine";
const LOOPBACK: &str = "lo";
const NO_LANDLOCK: &str = "landlock: the engine sets no rules";
const NO_DISK: &str = "disk: the Cell is a directory of the host";
const NO_CPU: &str = "cpu: no quota is set";

/// The enforced controls, and the others as `name: reason`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContainerControls {
    pub(super) enforced: Enforced,
    pub(super) not_enforced: Vec<String>,
}

/// Fails unless the commands of a container have no capability, cannot get one, and have no network.
pub(super) fn check(facts: &ContainerFacts, uid: u32) -> Result<(), ExecError> {
    let wrong = if facts.uid != uid {
        "the commands would not be the caller's"
    } else if facts.has_capabilities {
        "the commands would have capabilities"
    } else if !facts.no_new_privileges {
        "the commands could gain privileges"
    } else if facts.interfaces.iter().any(|name| name != LOOPBACK) {
        "the commands would have a network"
    } else {
        return Ok(());
    };
    Err(ExecError::failed("container", wrong))
}

/// The controls of a container with these facts. `outside` are the links of our own namespaces.
pub(super) fn controls(
    facts: &ContainerFacts,
    outside: &BTreeMap<String, String>,
    limits: StepLimits,
) -> ContainerControls {
    let is_own = |name: &str| {
        let inside = facts.namespaces.get(name);
        inside.is_some() && inside != outside.get(name)
    };
    let own = NAMESPACES.iter().filter(|(_, name)| is_own(name));
    let namespaces: Vec<_> = own.map(|(word, _)| *word).collect();
    let limited = |found: Option<(u8, u64)>, wanted: u64| {
        let (version, _) = found.filter(|(_, limit)| *limit <= wanted)?;
        Some(if version == 2 { "cgroup2" } else { "cgroup1" })
    };
    // The kernel counts memory in pages.
    let memory = limited(facts.memory, limits.memory_bytes_max);
    let processes = limited(facts.processes, limits.processes_max);
    let mut not_enforced = vec![NO_CPU.to_owned(), NO_DISK.to_owned(), NO_LANDLOCK.to_owned()];
    let shared = NAMESPACES_NEEDED.into_iter().filter(|word| !namespaces.contains(word));
    let shared: Vec<_> = shared.collect();
    if !shared.is_empty() {
        not_enforced
            .push(format!("namespaces: the engine shares {} of the host", shared.join(", ")));
    }
    for (name, is_enforced) in [
        ("memory", memory.is_some()),
        ("processes", processes.is_some()),
        ("seccomp", facts.is_filtered),
    ] {
        if !is_enforced {
            not_enforced.push(format!("{name}: the engine does not enforce it here"));
        }
    }
    not_enforced.sort();
    let seccomp = facts.is_filtered.then(|| PROFILE.to_owned());
    let enforced = Enforced { namespaces, seccomp, memory, processes, disk: None, cpu: None };
    ContainerControls { enforced, not_enforced }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ContainerFacts {
        let link = |name: &str| (name.to_owned(), format!("{name}:[2]"));
        ContainerFacts {
            uid: 7,
            no_new_privileges: true,
            is_filtered: true,
            namespaces: ["pid", "mnt", "ipc", "uts", "net"].map(link).into(),
            interfaces: vec!["lo".into()],
            memory: Some((2, 100)),
            processes: Some((1, 10)),
            ..ContainerFacts::default()
        }
    }

    fn limits() -> StepLimits {
        StepLimits { memory_bytes_max: 100, processes_max: 10, ..StepLimits::default() }
    }

    #[test]
    fn a_container_with_privileges_or_a_network_is_refused() {
        assert_eq!(check(&facts(), 7), Ok(()));
        assert!(check(&facts(), 8).is_err());
        type Change = fn(&mut ContainerFacts);
        let changes: [Change; 3] = [
            |facts| facts.has_capabilities = true,
            |facts| facts.no_new_privileges = false,
            |facts| facts.interfaces.push("eth0".into()),
        ];
        for change in changes {
            let mut changed = facts();
            change(&mut changed);
            assert!(check(&changed, 7).is_err(), "{changed:?}");
        }
    }

    #[test]
    fn what_the_engine_does_not_enforce_is_named() {
        let outside: BTreeMap<String, String> =
            [("pid", "pid:[1]"), ("net", "net:[1]"), ("uts", "uts:[2]")]
                .map(|(name, link)| (name.to_owned(), link.to_owned()))
                .into();
        let found = controls(&facts(), &outside, limits());
        assert_eq!(found.enforced.namespaces, ["pid", "mount", "ipc", "net"]);
        assert_eq!(found.enforced.memory, Some("cgroup2"));
        assert_eq!(found.enforced.processes, Some("cgroup1"));
        assert_eq!(found.not_enforced, [NO_CPU, NO_DISK, NO_LANDLOCK]);
        let weak = ContainerFacts { memory: Some((2, 101)), processes: None, ..facts() };
        let same = weak.namespaces.clone();
        let names: Vec<_> = controls(&weak, &same, limits()).not_enforced;
        let names: Vec<_> = names.iter().filter_map(|text| text.split(':').next()).collect();
        assert_eq!(names, ["cpu", "disk", "landlock", "memory", "namespaces", "processes"]);
    }
}
