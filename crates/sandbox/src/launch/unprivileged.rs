//! Boxes without any privilege: the service lives in a user namespace of its own, in which it
//! may do what it takes, and boxes are made there as they are elsewhere.
//!
//! What a host counts and allows by uid is the service's for every box then: there is one id to
//! map. So whatever that uid owns must be read-only where a box sees it, by mounts and not by
//! modes, and all bounds are set below the box's own user namespace, where the kernel counts apart.

use std::fs;
use std::io;
use std::sync::OnceLock;

use caps::{CapSet, Capability, has_cap};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, getegid, geteuid, getgroups};

use cofferdam_core::SetupFailure;

/// The uid and gid of everything in that namespace.
pub const ONLY_ID: u32 = 0;
/// What a report says of it.
pub const NOT_ENFORCED: &str =
    "uid: no privileges here; every run has the service's own uid on this host";

/// The uid outside, where this process has no privileges and lives in a namespace of its own; or
/// why it could have none.
static ENTERED: OnceLock<Result<Option<u32>, SetupFailure>> = OnceLock::new();

/// Has this process do without privileges, if it has none. Only while it has one thread; once.
pub fn enter_user_namespace() {
    ENTERED.get_or_init(enter_unless_privileged);
}

/// Whether boxes are made without privileges.
pub fn is_active() -> Result<bool, SetupFailure> {
    Ok(uid_outside()?.is_some())
}

/// Whose boxes they then are on this host.
pub fn uid_outside() -> Result<Option<u32>, SetupFailure> {
    ENTERED.get().cloned().unwrap_or(Ok(None))
}

fn enter_unless_privileged() -> Result<Option<u32>, SetupFailure> {
    let failed = |step: &'static str| move |error: io::Error| SetupFailure::from_io(step, &error);
    // With it the usual way is tried. And root without it stays as it is, to be refused: every
    // tenant would have root's uid.
    let has_usual = has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN);
    if geteuid().is_root()
        || has_usual.map_err(|error| failed("capget")(io::Error::other(error)))?
    {
        return Ok(None);
    }
    let (uid, gid) = (geteuid(), getegid());
    refuse_groups(gid)?;
    let unshared = unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS);
    unshared.map_err(|errno| failed("user namespace")(errno.into()))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{ONLY_ID} {uid} 1\n")),
        ("gid_map", format!("{ONLY_ID} {gid} 1\n")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(failed("map uid"))?;
    }
    // What is mounted from now on stays outside: what is looked up is what there is.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let made = mount(None::<&str>, "/", None::<&str>, private, None::<&str>);
    made.map_err(|errno| failed("private mounts")(errno.into()))?;
    Ok(Some(uid.as_raw()))
}

/// Without privileges no group can be given up, so every tenant would have them.
fn refuse_groups(own: Gid) -> Result<(), SetupFailure> {
    let groups =
        getgroups().map_err(|errno| SetupFailure::from_errno("getgroups", errno as i32))?;
    if groups.iter().all(|group| *group == own) {
        return Ok(());
    }
    let words = "every run would have the service's further groups; start it without, as by setpriv --clear-groups";
    Err(SetupFailure::from_words("setgroups", words))
}
