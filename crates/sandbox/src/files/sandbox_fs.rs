//! The file system of one sandbox: a tmpfs of its own, mounted nowhere on the host.

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
use cofferdam_tree::open_scoped;

/// Inodes of a sandbox's skeleton, added to the tenant's limit.
const SKELETON_INODES: u64 = 256;

/// A sandbox's root before anything runs in it, limited in bytes and inodes, and reachable only
/// through this value. Once this value is dropped and the sandbox is dead, the kernel frees all of
/// it.
#[derive(Debug)]
pub struct SandboxFs {
    root: OwnedFd,
    tenant: u32,
}

/// The directory of the skeleton that was opened last.
#[derive(Debug)]
struct OpenDirectory<'a> {
    path: &'a [u8],
    directory: OwnedFd,
}

impl SandboxFs {
    /// Creates a file system with the layout's skeleton; host id `tenant` owns its writable
    /// directories.
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
            fs.create_skeleton(entry, &mut opened)?;
        }
        Ok(fs)
    }

    /// Opens the directory that becomes `/workspace` or its upper layer, to be filled.
    pub fn workspace(&self, overlay: bool) -> Result<OwnedFd, SetupFailure> {
        let path = if overlay { c".overlay/upper" } else { c"workspace" };
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        openat(&self.root, path, flags, Mode::empty()).map_err(|errno| failed("open", path, errno))
    }

    /// The host id that owns the writable directories.
    pub fn tenant(&self) -> u32 {
        self.tenant
    }

    /// Creates a mount point at `target` (absolute, inside) with its missing parents, owned by the
    /// tenant. Existing entries stay.
    pub fn mount_point(&self, target: &Path, directory: bool) -> Result<CString, SetupFailure> {
        let relative = strip_root(target);
        let tenant = SkeletonKind::Tenant { mode: 0o755 };
        for parent in relative.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !parent.as_os_str().is_empty() {
                self.create_unless_exists(parent, &tenant)?;
            }
        }
        self.create_unless_exists(
            &relative,
            if directory { &tenant } else { &SkeletonKind::File },
        )?;
        Ok(c_string(target.as_os_str()))
    }

    /// Stores a copy of `program` for the sandbox to execute, read-only for the tenant; returns its
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

    /// Bytes and inodes in use.
    pub fn used(&self) -> io::Result<(u64, u64)> {
        sys::used_space(&self.root)
    }

    /// Resolves links on the way as inside, with the sandbox's root as `/`.
    fn create_unless_exists(&self, path: &Path, make: &SkeletonKind) -> Result<(), SetupFailure> {
        let (parent, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let created = open_scoped(&self.root, parent, how)
            .and_then(|parent| self.create_entry(parent.as_fd(), &c_string(name), make));
        match created {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(failed("make", &c_string(path.as_os_str()), errno)),
        }
    }

    fn create_skeleton<'a>(
        &self,
        entry: &'a SkeletonEntry,
        opened: &mut Option<OpenDirectory<'a>>,
    ) -> Result<(), SetupFailure> {
        let path = entry.path.as_c_str();
        let created = match parent_and_name(path) {
            None => self.create_entry(self.as_fd(), path, &entry.kind),
            Some((parent, name)) => self
                .enter(parent, opened)
                .and_then(|directory| self.create_entry(directory, name, &entry.kind)),
        };
        created.map_err(|errno| failed("make", path, errno))
    }

    /// Opens the directory `parent` without following links: the skeleton contains links of the shown
    /// root, and until the sandbox's file system is the root they lead into the host's.
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

    fn create_entry(
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
                    // mkdirat applies the umask and drops the sticky bit; fchmodat does neither.
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
                // A few bytes to a file in memory are written whole or not at all.
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

/// Whether the bytes or the inodes of the file system at `mount` are used up.
pub fn is_full(mount: BorrowedFd<'_>) -> io::Result<bool> {
    /// Less than a page or a handful of inodes counts as full.
    const NEARLY_NOTHING: (u64, u64) = (4096, 4);
    let (bytes, inodes) = sys::free_space(mount)?;
    Ok(bytes < NEARLY_NOTHING.0 || inodes < NEARLY_NOTHING.1)
}

/// Splits a relative path into its directory and name; `None` if the directory is the root.
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
