//! The identity, environment and limits of a run.

use serde_json::{Value, json};

use super::answers::assert_each;
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

const NO_CAPABILITY: &str = "0000000000000000";

pub fn privileges(target: &Target) -> Result<(), Unexercised> {
    let seen = target.observe(&Probe::python("privileges"));
    assert_nobody_else(&seen["before"]);
    assert_nobody_else(&seen["after"]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(seen["init"][set], NO_CAPABILITY, "{set} of the init");
    }
    assert_eq!(seen["bounding"], json!([]));
    assert_each(&seen["attempts"], &["EPERM", "EINVAL", "ENOTSUP", "ENOSYS", "EACCES", "EROFS"]);
    let programs = seen["programs"].as_object().unwrap();
    for (program, seen) in programs {
        let seen = seen.as_array().unwrap();
        assert!(!seen.is_empty(), "{program} was not seen to run");
        seen.iter().for_each(assert_nobody_else);
    }
    // Every host has set-id programs; a root file system made for runs may have none.
    assert!(target.own().is_err() || !programs.is_empty(), "no set-uid program to try");
    Ok(())
}

#[track_caller]
fn assert_nobody_else(status: &Value) {
    let ids = "10001 10001 10001 10001";
    assert_eq!((&status["Uid"], &status["Gid"]), (&json!(ids), &json!(ids)), "{status}");
    assert_eq!(status["Groups"], "", "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], NO_CAPABILITY, "{set}: {status}");
    }
    assert_eq!((&status["NoNewPrivs"], &status["Seccomp"]), (&json!("1"), &json!("2")), "{status}");
}

pub fn environment(target: &Target) -> Result<(), Unexercised> {
    let seen = target.observe(&Probe::python("environment"));
    let promised = [("LANG", "C.UTF-8"), ("HOME", "/tmp/home"), ("TMPDIR", "/tmp")];
    for (name, value) in promised {
        assert_eq!(seen["environment"][name], value, "{name}: {seen}");
    }
    assert_names(&seen);
    assert_eq!(seen["ids"], json!([10_001, 10_001, 10_001, 10_001, 10_001, 10_001]));
    assert_eq!(seen["groups"], json!([]));
    assert_eq!((&seen["umask"], &seen["directory"]), (&json!(0o022), &json!("/workspace")));
    assert_eq!(seen["encoding"], json!(["utf-8", "C.UTF-8"]));
    assert_eq!(seen["host"], json!(["sandbox", "sandbox"]));
    for set in ["ignored", "blocked"] {
        assert_eq!(seen[set], NO_CAPABILITY, "no signal is {set}");
    }
    // Otherwise the run could not read its own /proc entries.
    assert_eq!(seen["dumpable"], 1);
    assert_limits(&seen["limits"]);
    if let Ok(own) = target.own() {
        let text = seen.to_string();
        let sentinel = own.sentinel.path();
        for path in [env!("CARGO_MANIFEST_DIR"), sentinel.to_str().unwrap()] {
            assert!(!text.contains(path), "{path} shows in {seen}");
        }
    }
    Ok(())
}

/// Allows the documented names and those that a shell or make adds in the run.
#[track_caller]
fn assert_names(seen: &Value) {
    const PROMISED: &[&str] = &["PATH", "LANG", "HOME", "TMPDIR"];
    const OF_SHELLS: &[&str] = &["PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"];
    let names = super::answers::texts(&seen["everybody"]);
    let is_known = |name: &&str| {
        PROMISED.contains(name)
            || OF_SHELLS.contains(name)
            || name.starts_with("MAKE")
            || name.starts_with("PYTHON")
    };
    let others: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(names.contains(&"PATH"), "{names:?}");
}

#[track_caller]
fn assert_limits(limits: &Value) {
    assert_eq!(limits["open files"], json!([256, 256]));
    assert_eq!(limits["processes"], json!([256, 256]));
    assert_eq!(limits["core"][0], limits["core"][1]);
    assert!(limits["core"][0].as_u64().is_some_and(|bytes| bytes <= 1), "{limits}");
    // The timeout of the probe, and the second that a runtime started ahead may have used before.
    assert!(limits["cpu"][0] == 20 || limits["cpu"][0] == 21, "{limits}");
    assert!(limits["file size"][0].as_u64().is_some_and(|bytes| bytes > 0), "{limits}");
}
