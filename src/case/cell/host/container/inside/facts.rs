//! What the helper sees of the container's limits and privileges.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::unistd::geteuid;

use crate::case::cell::host::container::order::{ContainerFacts, LimitEvents};

/// Where a container sees its control groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// The files with a limit, of version 2 and of version 1.
const MEMORY_FILES: [&str; 2] = ["memory.max", "memory/memory.limit_in_bytes"];
const PROCESSES_FILES: [&str; 2] = ["pids.max", "pids/pids.max"];
/// The files with events.
const MEMORY_EVENTS: [&str; 2] = ["memory.events", "memory/memory.oom_control"];
const PROCESSES_EVENTS: [&str; 2] = ["pids.events", "pids/pids.events"];
/// The lines of `/proc/net/dev` before the first interface.
const NETWORK_HEAD_LINES: usize = 2;

/// What this process is held to.
pub(super) fn container_facts() -> ContainerFacts {
    let status = read("/proc/self/status");
    let field = |name: &str| field(&status, name);
    let is_without = |name: &str| field(name).is_some_and(|set| set.chars().all(|c| c == '0'));
    let memory = limit(MEMORY_FILES);
    ContainerFacts {
        uid: geteuid().as_raw(),
        has_capabilities: !["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
            .into_iter()
            .all(is_without),
        no_new_privileges: field("NoNewPrivs") == Some("1"),
        is_filtered: field("Seccomp") == Some("2"),
        namespaces: namespaces(),
        interfaces: interfaces(&read("/proc/self/net/dev")),
        memory,
        processes: limit(PROCESSES_FILES),
    }
}

/// The links that identify the namespaces of this process.
pub(in crate::case::cell::host::container) fn namespaces() -> BTreeMap<String, String> {
    let entries = fs::read_dir("/proc/self/ns").into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().into_string().ok()?, link.into_os_string().into_string().ok()?))
    });
    links.collect()
}

/// How often the limits of the container have been met so far.
pub(super) fn limit_events() -> LimitEvents {
    let count = |files: [&str; 2], name: &str| {
        let counts =
            files.into_iter().find_map(|file| event(&read(Path::new(GROUPS).join(file)), name));
        counts.unwrap_or(0)
    };
    LimitEvents {
        memory_kills: count(MEMORY_EVENTS, "oom_kill"),
        refused_processes: count(PROCESSES_EVENTS, "max"),
    }
}

/// The limit that one of `files` has, with the version of its control group.
fn limit(files: [&str; 2]) -> Option<(u8, u64)> {
    let versions = [2, 1].into_iter().zip(files);
    let mut limits = versions.filter_map(|(version, file)| {
        let limit = read(Path::new(GROUPS).join(file)).trim().parse().ok()?;
        Some((version, limit))
    });
    limits.next()
}

/// The number behind `name` in a file of events.
fn event(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

/// The value of the line `name:` of a status.
fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
}

fn interfaces(table: &str) -> Vec<String> {
    let lines = table.lines().skip(NETWORK_HEAD_LINES).filter_map(|line| line.split_once(':'));
    lines.map(|(name, _)| name.trim().to_owned()).collect()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read_as_either_version_writes_them() {
        for (text, name, wanted) in [
            ("low 0\noom 2\noom_kill 3\noom_group_kill 1\n", "oom_kill", Some(3)),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "oom_kill", Some(4)),
            ("max 5\n", "max", Some(5)),
            ("", "max", None),
        ] {
            assert_eq!(event(text, name), wanted, "{text:?}");
        }
        let status = "Name:\ta\nCapEff:\t0000\nNoNewPrivs:\t1\n";
        assert_eq!(field(status, "NoNewPrivs"), Some("1"));
        assert_eq!(field(status, "Seccomp"), None);
        let table = "Inter-| Receive\n face |bytes\n    lo: 0 0\n  eth0: 1 2\n";
        assert_eq!(interfaces(table), ["lo", "eth0"]);
    }

    #[test]
    fn this_process_is_in_namespaces() {
        assert!(namespaces()["pid"].starts_with("pid:["));
    }
}
