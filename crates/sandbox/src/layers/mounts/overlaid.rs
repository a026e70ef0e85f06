//! Directories of the host that one sandbox shows copy-on-write.
//!
//! Each is an overlay. What programs write lies in one file system in memory, which is limited and also has
//! the sandbox's `/workspace` and `/tmp`. The directory of the host is its lower layer, through a mount that
//! shows its owner's files as the sandbox's.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, mkdir};

use super::attributes::AttributeCalls;
use super::calls;
use super::owner_map::{OwnerMap, map_of_owner};
use super::stage::{self, MountName, Stage};
use crate::launch::unprivileged;
use crate::layers::error::LayerError;
use crate::layers::space::DiskSpace;
use crate::pool::host_id::HostId;
use crate::sys;
use cofferdam_core::{MountedDirectory, MountedWorkspace, SetupFailure, WorkspacePath};
use cofferdam_tree::ExtendedAttributes;

/// The sandbox's own file system, which holds `/run`, `/dev/shm` and `/var/tmp`.
const OWN_BYTES_MAX: u64 = 64 << 20;
const OWN_INODES_MAX: u64 = 16_384;
/// The directories that the sandbox shows at its root, with their modes.
const DIRECTORIES: [(&str, u32); 3] = [("workspace", 0o755), ("tmp", 0o1777), ("tmp/home", 0o755)];

/// A directory of the host that is to be shown.
#[derive(Debug)]
pub struct OverlaidSource {
    status: FileStat,
    lower: OwnedFd,
    base: OwnedFd,
    target: PathBuf,
    protected: Vec<Vec<u8>>,
}

impl OverlaidSource {
    /// Shows `directory` at the absolute path `target`, of names.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn new(directory: BorrowedFd<'_>, target: PathBuf) -> Result<Self, SetupFailure> {
        let make = || {
            let status = fstat(directory).map_err(LayerError::of_errno("stat directory"))?;
            let (lower, base) = (clone_of(directory)?, base_of(directory)?);
            Ok(Self { status, lower, base, target, protected: Vec::new() })
        };
        make().map_err(failure)
    }

    /// The directory, to be read; reading leaves no trace on it.
    pub fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// Lets programs not change `paths` below it, of names. What does not exist is passed over.
    pub fn protect(&mut self, paths: Vec<Vec<u8>>) {
        self.protected = paths;
    }
}

/// One directory while it is shown.
#[derive(Debug)]
pub struct OverlaidDirectory {
    target: PathBuf,
    base: OwnedFd,
    merged: OwnedFd,
    written: OwnedFd,
    index: Option<OwnedFd>,
    name: MountName,
}

/// The file system of one sandbox that shows directories of the host. Dropping it frees what was written.
#[derive(Debug)]
pub struct OverlaidDirs {
    /// Dropped before what they were written to.
    directories: Vec<OverlaidDirectory>,
    scratch: OwnedFd,
    name: MountName,
    host_id: u32,
}

impl OverlaidDirs {
    /// Mounts overlays over `sources`, with room for `room` of what programs write, for sandboxes with
    /// `host_id`.
    ///
    /// # Errors
    /// The kernel cannot put an overlay over a directory, or not map its owner.
    pub fn mount(
        sources: Vec<OverlaidSource>,
        room: DiskSpace,
        host_id: &HostId,
    ) -> Result<Self, SetupFailure> {
        let mounted = Stage::start().and_then(|stage| {
            let (name, scratch) = attach_scratch(&stage, room)?;
            let mut all = Self { directories: Vec::new(), scratch, name, host_id: host_id.id() };
            for (path, mode) in DIRECTORIES {
                all.make_directory(Path::new(path), mode)?;
            }
            for (number, source) in sources.into_iter().enumerate() {
                all.point(&source.target, true)?;
                let directory = all.overlay(&stage, number, source)?;
                all.directories.push(directory);
            }
            Ok(all)
        });
        mounted.map_err(failure)
    }

    /// The directories, in the order of their sources.
    pub fn directories(&self) -> &[OverlaidDirectory] {
        &self.directories
    }

    /// What the sandbox shows at its root: `/workspace` and `/tmp`.
    pub fn scratch(&self) -> BorrowedFd<'_> {
        self.scratch.as_fd()
    }

    /// Makes the mount point `target` of the sandbox, if it lies in `/workspace` or `/tmp`.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn make_point(&self, target: &Path, is_directory: bool) -> Result<(), SetupFailure> {
        self.point(target, is_directory).map_err(failure)
    }

    fn point(&self, target: &Path, is_directory: bool) -> Result<(), LayerError> {
        let Ok(below) = target.strip_prefix("/") else { return Ok(()) };
        if !below.starts_with("workspace") && !below.starts_with("tmp") {
            return Ok(());
        }
        let parents: Vec<&Path> = below.ancestors().skip(1).collect();
        for parent in parents.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
            self.make_directory(parent, 0o755)?;
        }
        if is_directory {
            return self.make_directory(below, 0o755);
        }
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let made = openat(&self.scratch, below, flags, Mode::from_bits_truncate(0o644));
        made.map(drop).map_err(LayerError::of_errno("make mount point"))
    }

    /// The mounts for the sandbox.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn mounts(&self) -> Result<MountedWorkspace, SetupFailure> {
        let clone = |name: &MountName, below: &'static str| {
            let path = format!("{}/{below}", name.path());
            name.stage().call("clone overlay", move || {
                let directory = stage::open_directory(&path, OFlag::O_PATH)?;
                sys::detached_private_trees(directory.as_fd())
                    .map_err(LayerError::of_io("clone mount"))
            })
        };
        let mounts = || {
            let mut others = Vec::new();
            for directory in &self.directories {
                let mount = clone(&directory.name, ".")?;
                others.push(MountedDirectory { mount, target: directory.target.clone() });
            }
            Ok(MountedWorkspace {
                workspace: clone(&self.name, "workspace")?,
                tmp: clone(&self.name, "tmp")?,
                path: WorkspacePath::default(),
                others,
                own_bytes_max: OWN_BYTES_MAX,
                own_inodes_max: OWN_INODES_MAX,
            })
        };
        mounts().map_err(failure)
    }

    /// Makes a directory of the sandbox's host id, unless it is there.
    fn make_directory(&self, path: &Path, mode: u32) -> Result<(), LayerError> {
        let of = LayerError::of_errno;
        match mkdirat(&self.scratch, path, Mode::S_IRWXU) {
            Err(Errno::EEXIST) => return Ok(()),
            made => made.map_err(of("make directory"))?,
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let made =
            openat(&self.scratch, path, flags, Mode::empty()).map_err(of("open directory"))?;
        // mkdirat applies the umask; fchmod does not.
        fchmod(&made, Mode::from_bits_truncate(mode)).map_err(of("set mode"))?;
        let (uid, gid) = (Some(Uid::from_raw(self.host_id)), Some(Gid::from_raw(self.host_id)));
        fchown(&made, uid, gid).map_err(of("set owner"))
    }

    fn overlay(
        &self,
        stage: &Arc<Stage>,
        number: usize,
        source: OverlaidSource,
    ) -> Result<OverlaidDirectory, LayerError> {
        let OverlaidSource { status, lower, base, target, protected } = source;
        let map = map_of_owner(status.st_uid, status.st_gid, self.host_id)?;
        if let OwnerMap::Through(namespace) = &map {
            calls::map_ids(lower.as_fd(), namespace.as_fd())
                .map_err(LayerError::of_io("map the owner of the directory"))?;
        }
        let own = format!("o{number}");
        self.make_layer(&own, &status, matches!(map, OwnerMap::Through(_)))?;
        let own_in_stage = format!("{}/{own}", self.name.path());
        let (name, lower_name) = (stage.name(), stage.name());
        let (path, lower_path) = (name.path().to_owned(), lower_name.path().to_owned());
        let merged = stage.call("mount overlay", move || {
            stage::attach_new(lower, &lower_path)?;
            mkdir(path.as_str(), Mode::S_IRWXU)
                .map_err(LayerError::of_errno("make mount point"))?;
            mount_overlay(&path, &lower_path, &own_in_stage)?;
            let merged = stage::open_directory(&path, OFlag::O_RDONLY)?;
            protected.iter().try_for_each(|path| protect(merged.as_fd(), path))?;
            Ok(merged)
        })?;
        let open = |path: &str| open_in(self.scratch.as_fd(), path);
        let written = open(&format!("{own}/u")).map_err(LayerError::of_errno("open layer"))?;
        // It is not there where the file system below gives no handles.
        let index = open(&format!("{own}/w/index")).ok();
        Ok(OverlaidDirectory { target, base, merged, written, index, name })
    }

    /// Makes the writable layer `own`, whose root has the attributes of the directory below.
    fn make_layer(&self, own: &str, below: &FileStat, is_mapped: bool) -> Result<(), LayerError> {
        let of = LayerError::of_errno;
        for (path, mode) in
            [(own.to_owned(), 0o700), (format!("{own}/u"), 0o700), (format!("{own}/w"), 0o700)]
        {
            mkdirat(&self.scratch, path.as_str(), Mode::from_bits_truncate(mode))
                .map_err(of("make layer"))?;
        }
        let root = open_in(self.scratch.as_fd(), &format!("{own}/u")).map_err(of("open layer"))?;
        let owner =
            if is_mapped { (self.host_id, self.host_id) } else { (below.st_uid, below.st_gid) };
        let (uid, gid) = (Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)));
        fchown(&root, uid, gid).map_err(of("set owner"))?;
        fchmod(&root, Mode::from_bits_truncate(below.st_mode)).map_err(of("set mode"))?;
        let modified = TimeSpec::new(below.st_mtime, below.st_mtime_nsec);
        futimens(&root, &modified, &modified).map_err(of("set times"))
    }
}

impl OverlaidDirectory {
    /// Where programs see it.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The directory of the host, to be read; reading leaves no trace on it.
    pub fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// What programs see.
    pub fn merged(&self) -> BorrowedFd<'_> {
        self.merged.as_fd()
    }

    /// What programs wrote, alone, with the marks of what they removed.
    pub fn written(&self) -> BorrowedFd<'_> {
        self.written.as_fd()
    }

    /// Whether a file with several names was written to: then some of its names may not be in
    /// [`OverlaidDirectory::written`].
    ///
    /// # Errors
    /// It cannot be read.
    pub fn has_hidden_names(&self) -> Result<bool, Errno> {
        let Some(index) = &self.index else { return Ok(false) };
        let mut entries = Dir::from_fd(open_in(index.as_fd(), ".")?)?;
        // An entry has a name of hexadecimal digits; what the kernel has for itself begins with `#`.
        let is_entry = |name: &[u8]| !name.starts_with(b".") && !name.starts_with(b"#");
        Ok(entries.iter().flatten().any(|entry| is_entry(entry.file_name().to_bytes())))
    }

    /// Whether `directory`, one of those that programs wrote to, hides what lies below at its path, or shows
    /// what lies at another.
    ///
    /// # Errors
    /// Its attributes cannot be read.
    pub fn is_detached(&self, directory: BorrowedFd<'_>) -> std::io::Result<bool> {
        let names = AttributeCalls.names(directory)?;
        let is_mark = |name: &[u8]| {
            name.ends_with(b".overlay.opaque") || name.ends_with(b".overlay.redirect")
        };
        Ok(names.iter().any(|name| is_mark(name.to_bytes())))
    }
}

/// Gives `to` the access list and the `user.` attributes of `from`, as far as its file system has them. Others are
/// privileges, or the file system's own.
///
/// # Errors
/// They cannot be read or set.
pub fn copy_own_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> std::io::Result<()> {
    let is_own = |name: &[u8]| {
        let of_user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        of_user || name == b"system.posix_acl_access"
    };
    for name in AttributeCalls.names(from)?.iter().filter(|name| is_own(name.to_bytes())) {
        let Some(value) = AttributeCalls.value(from, name)? else { continue };
        match AttributeCalls.set(to, name, &value) {
            Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {}
            set => set?,
        }
    }
    Ok(())
}

/// Attaches the file system in memory.
fn attach_scratch(stage: &Arc<Stage>, room: DiskSpace) -> Result<(MountName, OwnedFd), LayerError> {
    let text = |number: u64| std::ffi::CString::new(number.to_string()).unwrap_or_default();
    let (size, inodes) = (text(room.bytes), text(room.inodes));
    let options = [(c"mode", c"0755"), (c"size", &*size), (c"nr_inodes", &*inodes)];
    let scratch = sys::detached_tmpfs(&options).map_err(LayerError::of_io("mount tmpfs"))?;
    let name = stage.name();
    let path = name.path().to_owned();
    let attached = scratch.try_clone().map_err(LayerError::of_io("mount tmpfs"))?;
    stage.call("attach tmpfs", move || stage::attach_new(attached, &path))?;
    Ok((name, scratch))
}

/// The mount of `directory` from there on, attached nowhere.
fn clone_of(directory: BorrowedFd<'_>) -> Result<OwnedFd, LayerError> {
    sys::detached_mount(directory).map_err(LayerError::of_io("clone the directory's mount"))
}

/// The root of a read-only mount of `directory`.
fn base_of(directory: BorrowedFd<'_>) -> Result<OwnedFd, LayerError> {
    let base = clone_of(directory)?;
    calls::make_read_only(base.as_fd()).map_err(LayerError::of_io("make read-only"))?;
    open_in(base.as_fd(), ".").map_err(LayerError::of_errno("open directory"))
}

/// On the stage's thread: mounts the overlay at `path`.
fn mount_overlay(path: &str, lower: &str, own: &str) -> Result<(), LayerError> {
    // Names and links of files are what they would be without the overlay: directories can be renamed, and
    // a file keeps its names when it is written to.
    let kind = match unprivileged::is_active()? {
        true => "userxattr,index=off",
        false => "redirect_dir=on,index=on",
    };
    let options =
        format!("{kind},metacopy=off,xino=off,upperdir={own}/u,workdir={own}/w,lowerdir={lower}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("overlay"), path, Some("overlay"), flags, Some(options.as_str()))
        .map_err(LayerError::of_errno("mount overlay"))
}

/// On the stage's thread: covers `path` with a read-only view of itself.
fn protect(merged: BorrowedFd<'_>, path: &[u8]) -> Result<(), LayerError> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let found = match openat2(merged, OsStr::from_bytes(path), how) {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
        found => found.map_err(LayerError::of_errno("open a protected path"))?,
    };
    let cover = || {
        let view = sys::detached_mount(found.as_fd())?;
        calls::make_read_only(view.as_fd())?;
        calls::attach_over(view.as_fd(), found.as_fd())
    };
    cover().map_err(LayerError::of_io("protect a path"))
}

fn open_in(directory: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(directory, path, flags, Mode::empty())
}

fn failure(error: LayerError) -> SetupFailure {
    match error {
        LayerError::Failed(failure) => failure,
        other => SetupFailure::from_words("overlay", other.to_string()),
    }
}
