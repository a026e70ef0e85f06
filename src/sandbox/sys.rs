//! The supervisor's system calls that no safe wrapper covers, one function each.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::landlock;

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOUNT_ATTR_NOSUID: libc::c_uint = 0x2;
const MOUNT_ATTR_NODEV: libc::c_uint = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const OPEN_TREE_CLONE: libc::c_int = 1;
const OPEN_TREE_CLOEXEC: libc::c_int = libc::O_CLOEXEC;
const MFD_EXEC: libc::c_uint = 0x10;

/// A tmpfs that is mounted nowhere: reachable through the descriptor alone,
/// gone when the last descriptor and mount of it are. Nosuid, nodev.
pub fn detached_tmpfs(options: &[(&CStr, &CStr)]) -> io::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated and static; the result is a descriptor nobody else owns.
    let context =
        unsafe { owned(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), FSOPEN_CLOEXEC)) }?;
    for (key, value) in options {
        // SAFETY: both texts are NUL-terminated and outlive the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                FSCONFIG_SET_STRING,
                key.as_ptr(),
                value.as_ptr(),
                0,
            )
        };
        done(result)?;
    }
    // SAFETY: this command takes no key and no value.
    done(unsafe {
        let null = std::ptr::null::<libc::c_char>();
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    })?;
    // SAFETY: integers only; the result is a descriptor nobody else owns.
    unsafe {
        owned(libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        ))
    }
}

/// Whether the file system of `path` can be mounted with ids mapped by the
/// user namespace `userns`: tried on a copy of the mount that is attached nowhere.
pub fn can_map_ids(path: &Path, userns: BorrowedFd<'_>) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let tree = detached_tree(libc::AT_FDCWD, &path, 0)?;
    let attributes = [MOUNT_ATTR_IDMAP, 0, 0, u64::from(userns.as_raw_fd().unsigned_abs())];
    // SAFETY: `attributes` lies in memory as a struct mount_attr does, and is as long as said.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    match done(result) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A copy of the mount that `file` was opened through, of that file, or what is below that
/// directory, alone: mounted nowhere.
pub fn detached_mount(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    detached_tree(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn detached_tree(at: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = flags | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    // SAFETY: the path is NUL-terminated; the result is a descriptor nobody else owns.
    unsafe { owned(libc::syscall(libc::SYS_open_tree, at, path.as_ptr(), flags)) }
}

/// The version of the kernel's Landlock interface.
pub fn landlock_abi() -> io::Result<u32> {
    // SAFETY: asked for its version, the call takes neither attributes nor a size.
    let answer = unsafe {
        let null = std::ptr::null::<libc::c_void>();
        libc::syscall(landlock::SYS_CREATE_RULESET, null, 0, landlock::CREATE_RULESET_VERSION)
    };
    done(answer)?;
    u32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// An anonymous memory file; `executable` ones say so where the kernel asks
/// for it (`vm.memfd_noexec`), and are sealable.
pub fn memory_file(name: &CStr, executable: bool) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | if executable { libc::MFD_ALLOW_SEALING } else { 0 };
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is NUL-terminated; the result is a descriptor nobody else owns.
        unsafe { owned(libc::c_long::from(libc::memfd_create(name.as_ptr(), flags))) }
    };
    if !executable {
        return create(flags);
    }
    match create(flags | MFD_EXEC) {
        // Kernels before 6.3 do not know the flag and allow execution anyway.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create(flags),
        result => result,
    }
}

/// Sends `signal` to the process behind `pidfd`.
pub fn signal_process(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: integers only, and no siginfo.
    done(unsafe {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0)
    })
}

/// Gives a thread of whatever policy and niceness the ordinary ones.
pub fn schedule_ordinarily(thread: i32) -> io::Result<()> {
    let who = libc::id_t::try_from(thread).map_err(io::Error::other)?;
    let policy = libc::SCHED_OTHER;
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: integers, and a live local that is only read.
    let changed = unsafe { libc::sched_setscheduler(thread, policy, &raw const none) };
    done(changed.into())?;
    // SAFETY: integers only.
    done(unsafe { libc::setpriority(libc::PRIO_PROCESS, who, 0) }.into())
}

/// How the calling thread is scheduled.
pub fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: plain integers, for which zero is a value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the structure is a live local of the size given; 0 means the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) })?;
    Ok(attr)
}

/// Has the calling thread, and all it starts from now on, scheduled so.
pub fn set_scheduling(attr: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the structure says its own size and lives; 0 means the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attr, 0) })
}

/// What a reaped process used, its waited-for children counted in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rusage {
    /// User and system time.
    pub cpu: Duration,
    /// The largest resident set of any one of them, bytes.
    pub max_rss_bytes: u64,
}

/// Reaps the ended process `pid`; does not wait for one that still runs.
pub fn reap(pid: i32) -> io::Result<Rusage> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the types wait4 fills.
    let reaped =
        unsafe { libc::wait4(pid, &raw mut status, libc::__WALL | libc::WNOHANG, &raw mut usage) };
    if reaped != pid {
        return Err(if reaped < 0 {
            io::Error::last_os_error()
        } else {
            io::ErrorKind::WouldBlock.into()
        });
    }
    let max_rss_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Ok(Rusage {
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        max_rss_bytes: max_rss_kib * 1024,
    })
}

/// Bytes and inodes still free on the file system of `directory`.
pub fn free_space(directory: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = nix::sys::statvfs::fstatvfs(directory.as_fd())?;
    Ok((stat.blocks_available() * stat.fragment_size(), stat.files_free()))
}

/// Bytes and inodes taken on the file system of `directory`.
pub fn used_space(directory: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = nix::sys::statvfs::fstatvfs(directory.as_fd())?;
    let blocks = stat.blocks().saturating_sub(stat.blocks_free());
    Ok((blocks * stat.fragment_size(), stat.files().saturating_sub(stat.files_free())))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// Brings up `lo` in the network namespace of the calling thread.
pub fn raise_loopback() -> io::Result<()> {
    // SAFETY: integers only; the result is a descriptor nobody else owns.
    let socket = unsafe {
        owned(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())
    }?;
    // SAFETY: every field of an ifreq may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or(0);
    // SAFETY: the request is a live local of the type this command takes.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into())
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// `result` must be what a call returned that gives a new descriptor.
unsafe fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    done(result)?;
    let fd = i32::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the caller vouches that the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
