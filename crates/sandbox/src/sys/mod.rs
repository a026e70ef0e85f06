//! The supervisor's system calls that have no safe wrapper, one function each.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use super::landlock;

pub mod limits;
pub mod messages;
pub mod streams;
pub mod terminal;

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOUNT_ATTR_NOSUID: libc::c_uint = 0x2;
const MOUNT_ATTR_NODEV: libc::c_uint = 0x4;
const MOUNT_ATTR_NOEXEC: libc::c_uint = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const OPEN_TREE_CLONE: libc::c_int = 1;
const OPEN_TREE_CLOEXEC: libc::c_int = libc::O_CLOEXEC;
const MFD_EXEC: libc::c_uint = 0x10;

/// Configures the C library's allocator, while the process has one thread: the most heaps, the size
/// from which a block gets a mapping of its own, and the most free memory at the end of a heap, bytes.
/// If the allocator refuses a value, the process only uses more memory.
pub fn bound_heaps(
    heaps_max: libc::c_int,
    mapped_from_bytes: libc::c_int,
    free_end_bytes_max: libc::c_int,
) {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, heaps_max),
        (libc::M_MMAP_THRESHOLD, mapped_from_bytes),
        (libc::M_TRIM_THRESHOLD, free_end_bytes_max),
    ] {
        // SAFETY: integers only, and no other thread allocates meanwhile.
        unsafe { libc::mallopt(setting, value) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (heaps_max, mapped_from_bytes, free_end_bytes_max);
}

/// Makes the C library's allocator return free memory to the kernel.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks, and touches only free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Creates a tmpfs that is mounted nowhere: reachable only through the descriptor, and freed with its
/// last descriptor and mount. Nosuid, nodev.
pub fn detached_tmpfs(options: &[(&CStr, &CStr)]) -> io::Result<OwnedFd> {
    detached_file_system(c"tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
}

/// Creates a devpts of its own that is mounted nowhere: its terminals are in no other. Nosuid, noexec.
pub fn detached_devpts(options: &[(&CStr, &CStr)]) -> io::Result<OwnedFd> {
    detached_file_system(c"devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
}

fn detached_file_system(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: libc::c_uint,
) -> io::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated; the result is a descriptor that nothing else owns.
    let context = unsafe { owned(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)) }?;
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
    let fd = context.as_raw_fd();
    // SAFETY: integers only; the result is a descriptor that nothing else owns.
    unsafe { owned(libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes)) }
}

/// Whether the file system of `path` can be mounted with ids mapped by the user namespace `userns`:
/// tries it on a copy of the mount that is attached nowhere.
pub fn can_map_ids(path: &Path, userns: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(copy_with_ids_mapped(path, userns)?.is_some())
}

/// Returns that copy, or `None` if ids cannot be mapped. To drop it, the kernel waits for every CPU.
pub fn copy_with_ids_mapped(path: &Path, userns: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let tree = detached_tree(libc::AT_FDCWD, &path, 0)?;
    let attributes = [MOUNT_ATTR_IDMAP, 0, 0, u64::from(userns.as_raw_fd().unsigned_abs())];
    match set_mount_attributes(tree.as_fd(), libc::AT_EMPTY_PATH, attributes) {
        Ok(()) => Ok(Some(tree)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies the mount that `file` was opened through, from that file or directory on and without the
/// mounts below it. The copy is attached nowhere.
pub fn detached_mount(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    detached_tree(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// Copies the mount that `directory` was opened through, from there on and with all mounts below it.
/// The copy is private and attached nowhere.
pub fn detached_private_trees(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let depth = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let trees = detached_tree(directory.as_raw_fd(), c"", depth)?;
    set_mount_attributes(trees.as_fd(), depth, [0, 0, libc::MS_PRIVATE, 0])?;
    Ok(trees)
}

/// As [`detached_private_trees`], with ids mapped by `userns`.
pub fn detached_trees_with_ids(
    directory: BorrowedFd<'_>,
    userns: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let depth = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let trees = detached_tree(directory.as_raw_fd(), c"", depth)?;
    let userns = u64::from(userns.as_raw_fd().unsigned_abs());
    set_mount_attributes(trees.as_fd(), depth, [MOUNT_ATTR_IDMAP, 0, libc::MS_PRIVATE, userns])?;
    Ok(trees)
}

/// Calls `mount_setattr` on `tree` with the words of a struct mount_attr: attributes to set,
/// attributes to clear, propagation, user namespace.
fn set_mount_attributes(
    tree: BorrowedFd<'_>,
    flags: libc::c_int,
    attributes: [u64; 4],
) -> io::Result<()> {
    // SAFETY: `attributes` has the layout of a struct mount_attr and the length given.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of_val(&attributes),
        )
    })
}

fn detached_tree(at: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = flags | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    // SAFETY: the path is NUL-terminated; the result is a descriptor that nothing else owns.
    unsafe { owned(libc::syscall(libc::SYS_open_tree, at, path.as_ptr(), flags)) }
}

/// The version of the kernel's Landlock interface.
pub fn landlock_abi() -> io::Result<u32> {
    // SAFETY: with this flag the call takes neither attributes nor a size.
    let answer = unsafe {
        let null = std::ptr::null::<libc::c_void>();
        libc::syscall(landlock::SYS_CREATE_RULESET, null, 0, landlock::CREATE_RULESET_VERSION)
    };
    done(answer)?;
    u32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Creates an anonymous memory file. An `executable` one is sealable, and has the flag that kernels
/// with `vm.memfd_noexec` require.
pub fn memory_file(name: &CStr, executable: bool) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | if executable { libc::MFD_ALLOW_SEALING } else { 0 };
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is NUL-terminated; the result is a descriptor that nothing else owns.
        unsafe { owned(libc::c_long::from(libc::memfd_create(name.as_ptr(), flags))) }
    };
    if !executable {
        return create(flags);
    }
    match create(flags | MFD_EXEC) {
        // Kernels before 6.3 do not know the flag, and always allow execution.
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

/// Ticks of a second, and bytes of a page, as `/proc` counts with them.
pub fn proc_units() -> (u64, u64) {
    // SAFETY: integers only.
    let ask = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|unit| *unit > 0);
    (ask(libc::_SC_CLK_TCK).unwrap_or(100), ask(libc::_SC_PAGESIZE).unwrap_or(4096))
}

/// Whether a process visible here has the real uid `uid`. Zombies count.
pub fn has_processes(uid: u32) -> io::Result<bool> {
    Errno::clear();
    // SAFETY: integers only.
    let niceness = unsafe { libc::getpriority(libc::PRIO_USER, uid) };
    match (niceness, Errno::last()) {
        (-1, Errno::ESRCH) => Ok(false),
        (-1, errno) if errno != Errno::UnknownErrno => Err(errno.into()),
        _ => Ok(true),
    }
}

/// Opens a descriptor that always refers to the process with the number `pid` at this time. The
/// caller checks that it was still the intended process.
pub fn pidfd_of(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only; the result is a descriptor that nothing else owns.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid, 0)) }
}

/// Sets the ordinary scheduling policy and niceness for a thread.
pub fn schedule_ordinarily(thread: i32) -> io::Result<()> {
    let who = libc::id_t::try_from(thread).map_err(io::Error::other)?;
    let policy = libc::SCHED_OTHER;
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: integers, and a live local that is only read.
    let changed = unsafe { libc::sched_setscheduler(thread, policy, &raw const no_priority) };
    done(changed.into())?;
    // SAFETY: integers only.
    done(unsafe { libc::setpriority(libc::PRIO_PROCESS, who, 0) }.into())
}

/// The scheduling attributes of the calling thread.
pub fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the structure is a live local of the size given; 0 means the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) })?;
    Ok(attr)
}

/// Sets the scheduling attributes of the calling thread and of the threads and processes it starts
/// later.
pub fn set_scheduling(attr: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the structure is live and contains its own size; 0 means the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attr, 0) })
}

/// The usage of a reaped process, with the children that it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rusage {
    /// User and system time.
    pub cpu: Duration,
    /// The largest resident set of one process among them, bytes.
    pub max_rss_bytes: u64,
}

/// Reaps the dead process `pid`; does not wait for one that is alive.
pub fn reap(pid: i32) -> io::Result<Rusage> {
    let mut status = 0;
    // SAFETY: all fields are integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the types that wait4 fills.
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

/// Free bytes and inodes of the file system of `directory`.
pub fn free_space(directory: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = nix::sys::statvfs::fstatvfs(directory.as_fd())?;
    Ok((stat.blocks_available() * stat.fragment_size(), stat.files_free()))
}

/// Used bytes and inodes of the file system of `directory`.
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
    // SAFETY: integers only; the result is a descriptor that nothing else owns.
    let socket = unsafe {
        owned(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())
    }?;
    // SAFETY: zero is valid for every field of an ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or(0);
    // SAFETY: the request is a live local of the type this command takes.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into())
}

/// Whether the kernel supports seccomp listeners, with structures of the known sizes.
pub fn has_listeners() -> bool {
    let mut sizes =
        libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    // SAFETY: the structure is a live local of the type this operation fills.
    let asked = done(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes)
    });
    asked.is_ok()
        && usize::from(sizes.seccomp_notif) == size_of::<libc::seccomp_notif>()
        && usize::from(sizes.seccomp_notif_resp) == size_of::<libc::seccomp_notif_resp>()
}

/// Whether the calling thread has a filter already, or cannot tell.
pub fn is_filtered() -> bool {
    // SAFETY: integers only.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) != 0 }
}

/// Installs the filter `program`, instructions of 8 bytes, in the calling thread, and closes its
/// listener. The thread should end soon: every call that the filter reports fails from now on.
pub fn listen_in_this_thread(program: &[u8]) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len() / 8).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: integers only.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: the kernel copies `len` instructions of 8 bytes, which `program` has, and needs no
    // alignment; the result is a new descriptor.
    let listener = unsafe {
        owned(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        ))
    }?;
    drop(listener);
    Ok(())
}

/// Makes the supervisor, which waits on `listener`, and the callers, which wait for its answers, wake
/// up on the CPU of the thread that wakes them: only one of the two runs at a time. Kernels before 6.6
/// do not support it, and calls take longer.
pub fn wake_on_same_cpu(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: integers only.
    unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
    }
}

/// A call that a filter has reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Identifies it until it is answered.
    pub id: u64,
    /// The calling thread, by its number on this host.
    pub thread: u32,
    /// The number of the call.
    pub number: libc::c_long,
}

/// The next call reported to `listener`, which must be readable; `None` if its caller is dead.
pub fn next_notification(listener: BorrowedFd<'_>) -> io::Result<Option<Notification>> {
    // SAFETY: all fields are integers, and the kernel requires zeros.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a live local of the type this request fills.
    let received = done(
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) }
            .into(),
    );
    match received {
        Ok(()) => {
            Ok(Some(Notification { id: call.id, thread: call.pid, number: call.data.nr.into() }))
        }
        Err(error) if is_of_no_caller(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lets the kernel carry out the call `id`, or fails it with `errno`. A dead caller needs no answer.
pub fn answer_notification(
    listener: BorrowedFd<'_>,
    id: u64,
    errno: Option<i32>,
) -> io::Result<()> {
    let flags = match errno {
        None => u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).map_err(io::Error::other)?,
        Some(_) => 0,
    };
    let answer =
        libc::seccomp_notif_resp { id, val: 0, error: errno.map_or(0, |errno| -errno), flags };
    // SAFETY: the structure is a live local of the type this request reads.
    let sent = done(
        unsafe {
            libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer)
        }
        .into(),
    );
    match sent {
        Err(error) if is_of_no_caller(&error) => Ok(()),
        result => result,
    }
}

/// Whether the caller of the call `id` still waits for its answer.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the word is a live local of the type this request reads.
    let asked = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id)
    };
    asked == 0
}

fn is_of_no_caller(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR))
}

/// Sets the effective uid and gid of the calling thread alone to `id`, permanently.
pub fn take_effective_ids(id: u32) -> io::Result<()> {
    const SAME: libc::c_long = -1;
    // SAFETY: integers only; a direct call changes the calling thread alone.
    if unsafe { libc::geteuid() } == id {
        return Ok(());
    }
    // SAFETY: integers only.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    // SAFETY: as above. The gid first: after the uid change it cannot be changed.
    done(unsafe { libc::syscall(libc::SYS_setresgid, SAME, id, SAME) })?;
    // SAFETY: as above.
    done(unsafe { libc::syscall(libc::SYS_setresuid, SAME, id, SAME) })?;
    // The kernel makes a process undumpable when it changes its ids. Nothing has changed for its
    // other threads, so restore it.
    // SAFETY: integers only.
    done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) }.into())
}

/// From now on a write beyond `RLIMIT_FSIZE` fails with `EFBIG` instead of killing this process. In
/// sandboxes every signal has its default effect again.
pub fn survive_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler, and nothing else in this process handles it. The
    // signal may be ignored, so the call cannot fail.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Fails with `errno` if the system call did.
pub(crate) fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The descriptor that a system call returned, or its `errno`.
///
/// # Safety
/// `result` must be the result of a call that returns a new descriptor.
pub(crate) unsafe fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    done(result)?;
    let fd = i32::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the caller vouches that the descriptor is new, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
