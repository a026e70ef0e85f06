//! The file system of one box: a tmpfs of its own, mounted nowhere on the host.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, fchownat, symlinkat};

use crate::plan::rootfs::{PROGRAM, RootLayout, SkeletonEntry, SkeletonKind, c_string, strip_root};
use crate::sys;
use cofferdam_core::{Limits, SetupFailure};

/// Inodes that a box's own skeleton takes, added to the tenant's figure.
const SKELETON_INODES: u64 = 256;

/// A box's root before anything runs in it: size- and inode-capped, reachable
/// through this value alone. Its death, by dropping this and the end of the
/// box, is the whole clean-up, whatever a tenant has built inside.
#[derive(Debug)]
pub struct SandboxFs {
    root: OwnedFd,
    tenant: u32,
}

/// The directory of a skeleton that was entered last.
#[derive(Debug)]
struct OpenDirectory<'a> {
    path: &'a [u8],
    directory: OwnedFd,
}

impl SandboxFs {
    /// A fresh file system with the layout's skeleton, its writable places
    /// owned by host id `tenant`.
    pub fn create(layout: &RootLayout, limits: &Limits, tenant: u32) -> Result<Self, SetupFailure> {
        let size = c_number(limits.disk_bytes_max);
        let inodes = c_number(limits.disk_inodes_max.saturating_add(SKELETON_INODES));
        let options: [(&CStr, &CStr); 3] =
            [(c"mode", c"0755"), (c"size", &size), (c"nr_inodes", &inodes)];
        let root = sys::detached_tmpfs(&options)
            .map_err(|error| SetupFailure::from_io("mount tmpfs", &error))?;
        let fs = Self { root, tenant };
        let mut opened = None;
        for entry in &layout.skeleton {
            fs.make(entry, &mut opened)?;
        }
        Ok(fs)
    }

    /// The directory that will be `/workspace` (or its upper layer), to be filled.
    pub fn workspace(&self, overlay: bool) -> Result<OwnedFd, SetupFailure> {
        let path = if overlay { c".overlay/upper" } else { c"workspace" };
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        openat(&self.root, path, flags, Mode::empty()).map_err(|errno| failed("open", path, errno))
    }

    /// The host id that owns the writable places.
    pub fn tenant(&self) -> u32 {
        self.tenant
    }

    /// Makes a place for a mount at `target` (absolute, inside), with whatever
    /// parents it lacks, all the tenant's. What is there already stays.
    pub fn mount_point(&self, target: &Path, directory: bool) -> Result<CString, SetupFailure> {
        let relative = strip_root(target);
        let tenant = SkeletonKind::Tenant { mode: 0o755 };
        for parent in relative.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !parent.as_os_str().is_empty() {
                self.make_unless_there(parent, &tenant)?;
            }
        }
        self.make_unless_there(&relative, if directory { &tenant } else { &SkeletonKind::File })?;
        Ok(c_string(target.as_os_str()))
    }

    /// Keeps a copy of `program` for the box to execute, which nobody in it can change; gives its
    /// path inside.
    pub fn keep_program(&self, mut program: impl io::Read) -> Result<CString, SetupFailure> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let create = openat(&self.root, PROGRAM, flags, Mode::empty());
        let mut copy = File::from(create.map_err(|errno| failed("make", PROGRAM, errno))?);
        io::copy(&mut program, &mut copy)
            .and_then(|_| copy.set_permissions(Permissions::from_mode(0o755)))
            .map_err(|error| SetupFailure::from_io("write /.program", &error))?;
        Ok(c"/.program".to_owned())
    }

    /// Whether the box has used up its bytes or its inodes.
    pub fn is_full(&self) -> io::Result<bool> {
        /// Less than a page or a handful of inodes is as good as nothing.
        const NEARLY_NOTHING: (u64, u64) = (4096, 4);
        let (bytes, inodes) = sys::free_space(&self.root)?;
        Ok(bytes < NEARLY_NOTHING.0 || inodes < NEARLY_NOTHING.1)
    }

    /// Bytes and inodes that are taken.
    pub fn used(&self) -> io::Result<(u64, u64)> {
        sys::used_space(&self.root)
    }

    /// A link on the way leads where it will lead inside: the box's root is `/` already.
    fn make_unless_there(&self, path: &Path, make: &SkeletonKind) -> Result<(), SetupFailure> {
        let (parent, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let made = openat2(&self.root, parent, how)
            .and_then(|parent| self.make_entry(parent.as_fd(), &c_string(name), make));
        match made {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(failed("make", &c_string(path.as_os_str()), errno)),
        }
    }

    fn make<'a>(
        &self,
        entry: &'a SkeletonEntry,
        opened: &mut Option<OpenDirectory<'a>>,
    ) -> Result<(), SetupFailure> {
        let path = entry.path.as_c_str();
        let made = match parent_and_name(path) {
            None => self.make_entry(self.as_fd(), path, &entry.kind),
            Some((parent, name)) => self
                .enter(parent, opened)
                .and_then(|directory| self.make_entry(directory, name, &entry.kind)),
        };
        made.map_err(|errno| failed("make", path, errno))
    }

    /// The directory `parent`, which no link leads to: a root that is shown brings links of its own,
    /// and until the box's file system is the root they lead to the host's.
    fn enter<'a, 'o>(
        &self,
        parent: &'a [u8],
        opened: &'o mut Option<OpenDirectory<'a>>,
    ) -> Result<BorrowedFd<'o>, Errno> {
        if opened.as_ref().is_none_or(|opened| opened.path != parent) {
            let how = OpenHow::new()
                .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
            let directory = openat2(&self.root, OsStr::from_bytes(parent), how)?;
            *opened = Some(OpenDirectory { path: parent, directory });
        }
        opened.as_ref().map(|opened| opened.directory.as_fd()).ok_or(Errno::ENOENT)
    }

    fn make_entry(
        &self,
        at: BorrowedFd<'_>,
        path: &CStr,
        make: &SkeletonKind,
    ) -> Result<(), Errno> {
        match make {
            SkeletonKind::Directory => mkdirat(at, path, Mode::from_bits_truncate(0o755)),
            SkeletonKind::Closed => mkdirat(at, path, Mode::from_bits_truncate(0o700)),
            SkeletonKind::Tenant { mode } => {
                mkdirat(at, path, Mode::from_bits_truncate(0o755))?;
                if *mode != 0o755 {
                    // mkdirat obeys the umask and drops the sticky bit; this does neither.
                    fchmodat(
                        at,
                        path,
                        Mode::from_bits_truncate(*mode),
                        FchmodatFlags::FollowSymlink,
                    )?;
                }
                let (uid, gid) = (Uid::from_raw(self.tenant), Gid::from_raw(self.tenant));
                fchownat(at, path, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
            }
            SkeletonKind::File => {
                let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                openat(at, path, flags, Mode::from_bits_truncate(0o644)).map(drop)
            }
            SkeletonKind::Text(text) => {
                let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                let file = openat(at, path, flags, Mode::from_bits_truncate(0o644))?;
                // A few bytes to a file in memory: all of them, or a failure.
                nix::unistd::write(&file, text.as_bytes()).map(drop)
            }
            SkeletonKind::Symlink(target) => symlinkat(target.as_c_str(), at, path),
        }
    }
}

impl AsFd for SandboxFs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// The directory that a relative path is in, unless that is the root, and its name there.
fn parent_and_name(path: &CStr) -> Option<(&[u8], &CStr)> {
    let slash = path.to_bytes().iter().rposition(|byte| *byte == b'/')?;
    let name = CStr::from_bytes_with_nul(path.to_bytes_with_nul().get(slash + 1..)?).ok()?;
    Some((path.to_bytes().get(..slash)?, name))
}

fn failed(verb: &str, path: &CStr, errno: Errno) -> SetupFailure {
    SetupFailure::from_errno(format!("{verb} /{}", path.to_string_lossy()), errno as i32)
}

fn c_number(number: u64) -> CString {
    CString::new(number.to_string()).unwrap_or_default()
}
