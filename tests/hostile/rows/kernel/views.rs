//! The kernel's file systems: /proc and /sys.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::answers::{UNREACHABLE, assert_each, texts};
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

pub fn proc(target: &Target) -> Result<(), Unexercised> {
    let seen = target.observe(&Probe::python("proc_view"));
    assert_eq!(seen["own"], "ok", "its own /proc/self/maps");
    assert_only_own_processes(&seen);
    for (name, answer) in seen["secrets"].as_object().unwrap() {
        let answer = answer.as_str().unwrap();
        assert!(answer == "empty" || UNREACHABLE.contains(&answer), "/proc/{name}: {answer}");
    }
    assert_each(&seen["needed"], &["ok"]);
    assert_each(&seen["addresses"], &["none"]);
    assert!(seen["tried_to_write"].as_u64().is_some_and(|files| files > 100), "{seen}");
    assert_eq!(seen["writable"], json!([]));
    assert_each(&seen["init"], UNREACHABLE);
    assert_each(&seen["write_init"], UNREACHABLE);
    if let Ok(own) = target.own() {
        assert_eq!(seen["cgroups"], json!(["/"]), "its control groups");
        let text = seen.to_string();
        let sentinel = own.sentinel.path();
        for path in [env!("CARGO_MANIFEST_DIR"), sentinel.parent().unwrap().to_str().unwrap()] {
            assert!(!text.contains(path), "{path} shows");
        }
    }
    Ok(())
}

#[track_caller]
fn assert_only_own_processes(seen: &Value) {
    let processes = seen["processes"].as_object().unwrap();
    let own = |(pid, process): &(&String, &Value)| {
        // The init may have an unmapped user.
        *pid == "1" || process["uids"] == json!(["10001"])
    };
    let others: Vec<_> = processes.iter().filter(|process| !own(process)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(processes.keys().any(|pid| pid != "1"), "not even its own: {processes:?}");
    // A process that is not listed cannot be opened by its number either.
    let listed: BTreeSet<&str> = processes.keys().map(String::as_str).collect();
    assert_eq!(texts(&seen["outside"]).into_iter().collect::<BTreeSet<_>>(), listed);
}

pub fn sys(target: &Target) -> Result<(), Unexercised> {
    const KERNELS: &[&str] = &[
        "cgroup",
        "cgroup2",
        "sysfs",
        "debugfs",
        "tracefs",
        "securityfs",
        "bpf",
        "configfs",
        "fusectl",
        "pstore",
        "efivarfs",
        "binfmt_misc",
        "hugetlbfs",
        "selinuxfs",
    ];
    let seen = target.observe(&Probe::python("sys_view"));
    for what in ["places", "groups", "writes"] {
        assert_each(&seen[what], UNREACHABLE);
    }
    // The only file of such a name is the one the run created.
    assert_eq!(seen["controls"], json!(["/tmp/tasks"]));
    let mounted = texts(&seen["mounted"]);
    assert!(mounted.contains(&"proc"), "{mounted:?}");
    let kernels: Vec<_> = mounted.iter().filter(|kind| KERNELS.contains(kind)).collect();
    assert!(kernels.is_empty(), "{kernels:?}");
    Ok(())
}
