//! Sandboxes without privileges: the service enters a user namespace of its own, in which it has the
//! capabilities it needs, and creates sandboxes there as usual.
//!
//! Only one uid can be mapped, so every sandbox has the service's uid on the host. What that uid owns
//! must therefore be read-only in a sandbox by its mounts, since its modes do not help. Limits are
//! set inside the sandbox's own user namespace, where the kernel counts each sandbox on its own.

use std::fs;
use std::io;
use std::sync::OnceLock;

use caps::{CapSet, Capability, has_cap};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, getegid, geteuid, getgroups};

use cofferdam_core::SetupFailure;

/// The only uid and gid in that namespace.
pub const ONLY_ID: u32 = 0;
/// What a report says about it.
pub const NOT_ENFORCED: &str =
    "uid: no privileges here; every run has the service's own uid on this host";

/// This process's uid outside the namespace, if it entered one; or why it could not.
static ENTERED: OnceLock<Result<Option<u32>, SetupFailure>> = OnceLock::new();

/// Enters a user namespace if this process has no privileges. Call it once, while the process has
/// one thread.
pub fn enter_user_namespace() {
    ENTERED.get_or_init(enter_unless_privileged);
}

/// Whether this process creates sandboxes without privileges.
pub fn is_active() -> Result<bool, SetupFailure> {
    Ok(uid_outside()?.is_some())
}

/// The uid of its sandboxes on this host, if it does.
pub fn uid_outside() -> Result<Option<u32>, SetupFailure> {
    ENTERED.get().cloned().unwrap_or(Ok(None))
}

fn enter_unless_privileged() -> Result<Option<u32>, SetupFailure> {
    let failed = |step: &'static str| move |error: io::Error| SetupFailure::from_io(step, &error);
    // With CAP_SYS_ADMIN sandboxes are created the usual way. Root without it stays outside, and is
    // refused later: every tenant would have root's uid.
    let is_admin = has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN);
    if geteuid().is_root() || is_admin.map_err(|error| failed("capget")(io::Error::other(error)))? {
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
    // Later mounts of the host do not appear here.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let made = mount(None::<&str>, "/", None::<&str>, private, None::<&str>);
    made.map_err(|errno| failed("private mounts")(errno.into()))?;
    Ok(Some(uid.as_raw()))
}

/// Refuses supplementary groups: without privileges they cannot be dropped, and every tenant would
/// have them.
fn refuse_groups(own: Gid) -> Result<(), SetupFailure> {
    let groups =
        getgroups().map_err(|errno| SetupFailure::from_errno("getgroups", errno as i32))?;
    if groups.iter().all(|group| *group == own) {
        return Ok(());
    }
    let words = "every run would have the service's further groups; start it without, as by setpriv --clear-groups";
    Err(SetupFailure::from_words("setgroups", words))
}
