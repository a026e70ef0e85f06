//! What the first program of a guest does beside its conversation: mounts, calls the host, ends.

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

/// The drive that workspaces come and go by: the second one.
pub const SCRATCH_DRIVE: &str = "/dev/vdb";
/// The drive with the root file system.
const ROOT_DRIVE: &str = "/dev/vda";
/// Where it is put until it is the root.
const NEW_ROOT: &str = "/root";
/// What it may be.
const ROOT_KINDS: [&str; 3] = ["ext4", "squashfs", "erofs"];
/// The kinds of file systems that an initramfs is.
const INITRAMFS_KINDS: [i64; 2] = [0x8584_58f6, 0x0102_1994];

const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Kind, place, flags, options.
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

/// Makes a system of a kernel with a root file system, or with an initramfs and a root drive.
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

/// Mounts it; where the kernel has done so already, it is as it should be.
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

/// Has the file system of the first drive, read-only, be the root.
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
        SetupFailure::from_words(format!("mount {ROOT_DRIVE}"), format!("it is none of {kinds}"))
    })?;
    let none = None::<&str>;
    chdir(NEW_ROOT).map_err(failed("chdir"))?;
    mount(Some("."), "/", none, MsFlags::MS_MOVE, none).map_err(failed("move the root"))?;
    chroot(".").map_err(failed("chroot"))?;
    chdir("/").map_err(failed("chdir"))
}

/// A line to the host, which was listening before this machine was started.
pub fn call_host(deadline: Deadline) -> Result<UnixStream, SetupFailure> {
    loop {
        match connect_to_host() {
            // What is spoken on it is read and written as on any other stream of the kind.
            Ok(line) => return Ok(UnixStream::from(line)),
            // The device may not be there yet.
            Err(errno) if deadline.passed() => {
                return Err(SetupFailure::from_errno("call the host", errno as i32));
            }
            Err(_) => thread::sleep(RETRY_AFTER.min(deadline.remaining())),
        }
    }
}

fn connect_to_host() -> Result<OwnedFd, Errno> {
    let line = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    connect(line.as_raw_fd(), &VsockAddr::new(libc::VMADDR_CID_HOST, HOST_PORT))?;
    Ok(line)
}

/// Ends the machine. A program that is first and returns would be a panic of the kernel.
pub fn end() -> io::Result<()> {
    sync();
    // What a machine without a firmware understands; with QEMU's -no-reboot, the end too.
    match reboot(RebootMode::RB_AUTOBOOT) {
        Ok(never) => match never {},
        Err(errno) => Err(errno.into()),
    }
}
