//! The guest's init: mounts the file systems, connects to the host and ends the machine.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr, connect, socket};
use nix::sys::statfs::statfs;
use nix::unistd::{chdir, chroot, sync};

use crate::machine::HOST_PORT;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;

/// The second drive, which carries workspaces.
pub const SCRATCH_DRIVE: &str = "/dev/vdb";
/// The drive with the root file system.
const ROOT_DRIVE: &str = "/dev/vda";
/// Where the root drive is mounted before it becomes the root.
const NEW_ROOT: &str = "/root";
/// The supported file systems of the root drive.
const ROOT_KINDS: [&str; 3] = ["ext4", "squashfs", "erofs"];
/// The file system types of an initramfs: tmpfs and ramfs.
const INITRAMFS_KINDS: [i64; 2] = [0x8584_58f6, 0x0102_1994];

const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Type, mount point, flags, options.
type Mount = (&'static str, &'static str, MsFlags, &'static str);
const PLAIN: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC).union(MsFlags::MS_NODEV);
const OPEN: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
const MOUNTS: [Mount; 7] = [
    ("proc", "/proc", PLAIN, ""),
    ("sysfs", "/sys", PLAIN, ""),
    ("devtmpfs", "/dev", MsFlags::MS_NOSUID, ""),
    ("tmpfs", "/dev/shm", OPEN, "mode=1777"),
    ("tmpfs", "/tmp", OPEN, "mode=1777"),
    ("tmpfs", "/run", OPEN, "mode=755"),
    ("cgroup2", "/sys/fs/cgroup", PLAIN, "nsdelegate,memory_recursiveprot"),
];

/// Mounts the file systems, on a root file system or on an initramfs with a root drive.
pub fn settle() -> Result<(), SetupFailure> {
    let root = statfs("/").map_err(|errno| SetupFailure::from_errno("statfs /", errno as i32))?;
    if INITRAMFS_KINDS.contains(&root.filesystem_type().0) {
        enter_root_drive()?;
    }
    for (kind, place, flags, options) in MOUNTS {
        if place == "/dev/shm" {
            let _ = fs::create_dir(place);
        }
        put(kind, kind, place, flags, options)?;
    }
    Ok(())
}

/// Mounts a file system, unless the kernel has mounted it already.
fn put(
    source: &str,
    kind: &str,
    place: &str,
    flags: MsFlags,
    options: &str,
) -> Result<(), SetupFailure> {
    match mount(Some(source), place, Some(kind), flags, Some(options)) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(errno) => Err(SetupFailure::from_errno(format!("mount {place}"), errno as i32)),
    }
}

/// Makes the file system of the first drive the root, read-only.
fn enter_root_drive() -> Result<(), SetupFailure> {
    let failed =
        |step: &'static str| move |errno: Errno| SetupFailure::from_errno(step, errno as i32);
    for place in ["/dev", NEW_ROOT] {
        let _ = fs::create_dir(place);
    }
    put("dev", "devtmpfs", "/dev", MsFlags::empty(), "")?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV;
    let mounted = ROOT_KINDS
        .iter()
        .find_map(|kind| mount(Some(ROOT_DRIVE), NEW_ROOT, Some(*kind), flags, None::<&str>).ok());
    mounted.ok_or_else(|| {
        let kinds = ROOT_KINDS.join(", ");
        SetupFailure::from_words(
            format!("mount {ROOT_DRIVE}"),
            format!("its file system is not one of {kinds}"),
        )
    })?;
    let none = None::<&str>;
    chdir(NEW_ROOT).map_err(failed("chdir"))?;
    mount(Some("."), "/", none, MsFlags::MS_MOVE, none).map_err(failed("move the root"))?;
    chroot(".").map_err(failed("chroot"))?;
    chdir("/").map_err(failed("chdir"))
}

/// Connects to the host, which listened before the machine started.
pub fn call_host(deadline: Deadline) -> Result<UnixStream, SetupFailure> {
    loop {
        match connect_to_host() {
            // A vsock stream is read and written like a Unix stream.
            Ok(connection) => return Ok(UnixStream::from(connection)),
            // The device may not exist yet.
            Err(errno) if deadline.passed() => {
                return Err(SetupFailure::from_errno("call the host", errno as i32));
            }
            Err(_) => thread::sleep(RETRY_AFTER.min(deadline.remaining())),
        }
    }
}

fn connect_to_host() -> Result<OwnedFd, Errno> {
    let connection = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    connect(connection.as_raw_fd(), &VsockAddr::new(libc::VMADDR_CID_HOST, HOST_PORT))?;
    Ok(connection)
}

/// Ends the machine. If init returned, the kernel would panic.
pub fn end() -> io::Result<()> {
    sync();
    // A machine without firmware ends on reboot; QEMU with -no-reboot does too.
    match reboot(RebootMode::RB_AUTOBOOT) {
        Ok(never) => match never {},
        Err(errno) => Err(errno.into()),
    }
}
