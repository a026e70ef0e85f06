//! Creating and entering namespaces.

use super::answers::{Expected, OK, REFUSED, UNREACHABLE, answers_told};
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

const KINDS: &[&str] = &["mnt", "cgroup", "uts", "ipc", "user", "pid", "net", "time"];
const CLONED: &[&str] = &["mnt", "cgroup", "uts", "ipc", "user", "pid", "net"];
/// The kernel's answers for a parent namespace that does not exist or is outside the caller's.
const NOT_TOLD: &[&str] = &["EPERM", "EINVAL", "ENOTTY", "EACCES"];

pub fn creating_and_entering(target: &Target) -> Result<(), Unexercised> {
    let mut answers = answers_told(&target.observe(&Probe::c("namespaces")));
    let limit = answers.remove("limit");
    Expected::default()
        .each("unshare-", KINDS, REFUSED)
        .all(&["unshare-high-bit"], REFUSED)
        .each("clone-", CLONED, &["EPERM"])
        .all(&["clone-high-bit"], &["EPERM"])
        .all(&["clone-nothing-new"], OK)
        .each("clone3-", KINDS, &["ENOSYS"])
        .all(&["clone3-nothing-new", "clone3-no-size"], &["ENOSYS"])
        .each("open-own-", KINDS, OK)
        .each("setns-own-", KINDS, REFUSED)
        .each("setns-pidfd-", KINDS, REFUSED)
        .each("setns-init-", KINDS, UNREACHABLE)
        .each("owner-of-", KINDS, NOT_TOLD)
        .each("parent-of-", KINDS, NOT_TOLD)
        .all(&["map-root", "map-own", "map-gid", "map-project"], UNREACHABLE)
        .all(&["allow-setgroups", "raise-limit"], UNREACHABLE)
        .hold(answers);
    if target.own().is_ok() {
        // A second barrier in case the filter ever lets such a call through.
        assert_eq!(limit.as_deref(), Some("0"), "user namespaces below the run's own");
    }
    Ok(())
}
