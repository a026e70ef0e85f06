//! A file system in a sparse file that has no name: nothing of it is left when its last mount is gone,
//! however that comes about.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, OFlag, fallocate, open, openat};
use nix::sys::stat::{Mode, mkdirat, mknodat};
use nix::unistd::syncfs;

use super::loop_device::LoopDevice;
use super::template::{self, ImageTemplates};
use crate::layers::error::LayerError;
use crate::layers::mounts::calls;
use crate::layers::space::DiskSpace;
use crate::sys;

const MKFS: &str = "mkfs.ext4";
/// Where it is besides `PATH`.
const SYSTEM_PATHS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// The longest that it may take. It writes a few hundred blocks.
const MKFS_WAIT: Duration = Duration::from_secs(20);
const MKFS_POLL: Duration = Duration::from_millis(2);
/// What ext4 does without.
const OPTIONS: &str = "^has_journal,^resize_inode";
/// The same for a template, of whose identity no checksum but the superblock's depends.
const TEMPLATE_OPTIONS: &str = "^has_journal,^resize_inode,metadata_csum,metadata_csum_seed";
/// What a template leaves free besides the room, for the directories of layers.
const TEMPLATE_SPARE: DiskSpace = DiskSpace { bytes: 64 << 10, inodes: 8 };
/// Of an inode in its table.
const INODE_BYTES: u64 = 256;
/// What ext4 uses or keeps free besides a share of its size: at most 16 MiB are kept.
const FIXED_BYTES: u64 = 32 << 20;
/// The share for its bitmaps and trees is one part in so many.
const SHARE: u64 = 32;
/// Inodes that ext4 has of its own, and those of a layer's directories.
const OWN_INODES: u64 = 32;
/// ext4 rounds the number of inodes up; more than this are left over only in very large images.
const INODES_TAKEN_MAX: u64 = 8_192;
/// Takes what the file system has beyond the limit.
const BALLAST: &str = "b";

/// Makes images.
#[derive(Debug)]
pub(in crate::layers) struct ImageMaker {
    directory: PathBuf,
    mkfs: PathBuf,
    templates: ImageTemplates,
}

impl ImageMaker {
    /// Images are files in `directory`.
    pub(in crate::layers) fn open(directory: &Path) -> Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = SYSTEM_PATHS.iter().map(PathBuf::from);
        let mut places = std::env::split_paths(&path).chain(system);
        let mkfs = places.find_map(|place| Some(place.join(MKFS)).filter(|path| path.is_file()));
        let mkfs = mkfs.ok_or_else(|| format!("{MKFS} is not installed"))?;
        let templates = ImageTemplates::default();
        Ok(Self { directory: directory.to_owned(), mkfs, templates })
    }

    /// Mounts a new image with room for `room`, attached nowhere.
    pub(in crate::layers) fn mount(&self, room: DiskSpace) -> Result<OwnedFd, LayerError> {
        let image = match self.templates.of(room, || self.template(room)) {
            Some(template) => {
                let image = self.unnamed()?;
                template::copy(&template, &image).map_err(LayerError::of_io("copy image"))?;
                image
            }
            None => self.make(room, OPTIONS)?,
        };
        mount(&image)
    }

    /// An image that is only copied, with most of what its copies must not have taken.
    fn template(&self, room: DiskSpace) -> io::Result<File> {
        let image = self.make(room, TEMPLATE_OPTIONS).map_err(io::Error::other)?;
        let root = mount(&image).map_err(io::Error::other)?;
        limit_free(&root, room.plus(TEMPLATE_SPARE)).map_err(io::Error::other)?;
        // Writes all of it, and marks it as whole.
        calls::reconfigure(root.as_fd(), &[(c"ro", None)])?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        syncfs(openat(&root, ".", flags, Mode::empty())?)?;
        Ok(image)
    }

    /// A file without a name.
    fn unnamed(&self) -> Result<File, LayerError> {
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let image = open(&self.directory, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        Ok(File::from(image.map_err(LayerError::of_errno("make image"))?))
    }

    /// A file without a name that has a file system.
    fn make(&self, room: DiskSpace, options: &str) -> Result<File, LayerError> {
        let image = self.unnamed()?;
        let inodes = room.inodes.saturating_add(OWN_INODES);
        let bytes = room.bytes + room.bytes / SHARE + inodes * INODE_BYTES + FIXED_BYTES;
        image.set_len(bytes).map_err(LayerError::of_io("make image"))?;
        let input = image.try_clone().map_err(LayerError::of_io("make image"))?;
        let mut mkfs = Command::new(&self.mkfs);
        mkfs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-N"])
            .arg(inodes.to_string())
            .args(["-O", options])
            .args(["-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "/proc/self/fd/0"])
            .env_clear()
            .stdin(Stdio::from(input))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        run(&mut mkfs).map_err(LayerError::of_io(MKFS))?;
        Ok(image)
    }
}

/// Mounts `image`, attached nowhere.
fn mount(image: &File) -> Result<OwnedFd, LayerError> {
    let device = LoopDevice::over(image.as_fd());
    let device = device.map_err(LayerError::of_io("configure loop device"))?;
    let source = CString::new(device.path.clone()).unwrap_or_default();
    // What is deleted leaves the image, too. Empty tables of inodes are never written.
    let options =
        [(c"source", Some(source.as_c_str())), (c"discard", None), (c"noinit_itable", None)];
    calls::mount_detached(c"ext4", &options).map_err(LayerError::of_io("mount image"))
}

/// Runs `command` until it ends, or kills it after [`MKFS_WAIT`].
fn run(command: &mut Command) -> io::Result<()> {
    let mut child = command.spawn()?;
    let deadline = Instant::now() + MKFS_WAIT;
    while Instant::now() < deadline {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(status.to_string())),
            None => std::thread::sleep(MKFS_POLL),
        }
    }
    child.kill()?;
    child.wait()?;
    Err(io::ErrorKind::TimedOut.into())
}

/// Fills the file system `root` until only `room` is free. Nothing else may change it meanwhile.
pub(in crate::layers) fn limit_free(root: impl AsFd, room: DiskSpace) -> Result<(), LayerError> {
    let failed = LayerError::of_errno;
    let flags = OFlag::O_CREAT | OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let ballast = openat(root.as_fd(), BALLAST, flags, Mode::S_IRUSR | Mode::S_IWUSR);
    let ballast = File::from(ballast.map_err(failed("limit image"))?);
    let directory = format!("{BALLAST}i");
    match mkdirat(root.as_fd(), directory.as_str(), Mode::S_IRWXU) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
        Err(errno) => return Err(failed("limit image")(errno)),
    }
    let free = || sys::free_space(root.as_fd()).map_err(LayerError::of_io("measure image"));
    let spare = free()?.1.saturating_sub(room.inodes).min(INODES_TAKEN_MAX);
    for number in 0..spare {
        let path = format!("{directory}/{}-{number}", free()?.1);
        mknodat(root.as_fd(), path.as_str(), nix::sys::stat::SFlag::S_IFREG, Mode::empty(), 0)
            .map_err(failed("limit image"))?;
    }
    let length = ballast.metadata().map_err(LayerError::of_io("limit image"))?.len();
    let bytes = free()?.0;
    let wanted = (length + bytes).saturating_sub(room.bytes);
    if wanted <= length {
        return ballast.set_len(wanted).map_err(LayerError::of_io("limit image"));
    }
    let [from, more] = [length, wanted - length].map(|bytes| i64::try_from(bytes).unwrap_or(0));
    fallocate(&ballast, FallocateFlags::empty(), from, more).map_err(failed("limit image"))
}
