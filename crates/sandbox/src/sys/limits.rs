//! Limits of other processes.

use std::io;

use super::done;

/// Sets the soft and the hard limit of the CPU seconds of each of `pids`, whose user and group are
/// `owner`. Without `CAP_SYS_RESOURCE`, which many containers lack, the kernel wants the caller to
/// have the same real ids. So this thread takes them for the call, and no other id or right changes.
pub fn set_cpu_seconds(pids: &[i32], owner: u32, [soft, hard]: [u64; 2]) -> io::Result<()> {
    // SAFETY: no argument is a pointer, and these calls do not fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    if uid == owner {
        return pids.iter().try_for_each(|pid| limit(*pid, soft, hard));
    }
    set_real_ids(owner, owner)?;
    let limited = pids.iter().try_for_each(|pid| limit(*pid, soft, hard));
    limited.and(set_real_ids(uid, gid))
}

fn limit(pid: i32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    let no_old = std::ptr::null_mut();
    // SAFETY: the limit is a live local, and the old one is not asked for.
    done(unsafe { libc::prlimit64(pid, libc::RLIMIT_CPU, &raw const limit, no_old) }.into())
}

/// Sets the real ids of this thread alone, which the C library would set for all threads.
fn set_real_ids(uid: u32, gid: u32) -> io::Result<()> {
    const KEEP: libc::c_long = -1;
    for (call, id) in [(libc::SYS_setresgid, gid), (libc::SYS_setresuid, uid)] {
        // SAFETY: integers only. The effective ids, which decide what this thread may do, stay.
        done(unsafe { libc::syscall(call, libc::c_long::from(id), KEEP, KEEP) })?;
    }
    Ok(())
}
