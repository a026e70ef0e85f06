//! One layer: a file system of its own, limited in bytes and inodes.
//!
//! Its directory `u` holds the entries that the layer adds to those below. `w` is overlayfs's own.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fstatat, mkdirat};

use super::calls;
use super::stage::{self, MountName, Stage};
use super::view::View;
use crate::layers::disk::image::{self, ImageMaker};
use crate::layers::error::LayerError;
use crate::layers::space::{DiskSpace, LEAST_ROOM, Storage};
use crate::sys;
use cofferdam_core::SetupFailure;
use cofferdam_core::weakened::{self, Wall};

/// The kernel's unit of a limit of bytes.
const PAGE_BYTES: u64 = 4096;
/// How long the kernel is asked again while a file is still open for writing, and how often: a process
/// that has just ended, or that has not yet executed its program, may be about to close it. On busy processors
/// that takes a while.
const BUSY_WAIT: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Where a layer has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layers) enum Place {
    /// Below all others. It needs no `w`.
    Bottom,
    /// Above another. The kernel decides how many inodes it has before it has entries.
    Above {
        /// That number.
        own_inodes: u64,
    },
}

impl Place {
    fn own_inodes(self) -> u64 {
        match self {
            // The root and `u`.
            Self::Bottom => 2,
            Self::Above { own_inodes } => own_inodes,
        }
    }
}

/// A new layer, not yet attached.
#[derive(Debug)]
pub(in crate::layers) struct DetachedLayer {
    mount: OwnedFd,
    own: DiskSpace,
    storage: Storage,
}

impl DetachedLayer {
    /// Creates one in memory with room for `room`, which is at least
    /// [`LEAST_ROOM`](crate::layers::space::LEAST_ROOM).
    pub(in crate::layers) fn in_memory(room: DiskSpace, place: Place) -> Result<Self, LayerError> {
        let own_inodes = place.own_inodes();
        let [size, inodes] = limits(room, own_inodes);
        let options = [(c"mode", c"0755"), (c"size", &size), (c"nr_inodes", &inodes)];
        let mount = sys::detached_tmpfs(&options).map_err(LayerError::of_io("mount tmpfs"))?;
        let make = |name, mode| mkdirat(&mount, name, Mode::from_bits_truncate(mode));
        make(c"u", 0o755).map_err(LayerError::of_errno("make layer"))?;
        if place != Place::Bottom {
            make(c"w", 0o700).map_err(LayerError::of_errno("make layer"))?;
        }
        let own = DiskSpace { bytes: 0, inodes: own_inodes };
        Ok(Self { mount, own, storage: Storage::Memory })
    }

    /// Creates one on disk.
    pub(in crate::layers) fn on_disk(
        images: &ImageMaker,
        room: DiskSpace,
        place: Place,
    ) -> Result<Self, LayerError> {
        let mount = images.mount(room)?;
        let make = |name, mode| mkdirat(&mount, name, Mode::from_bits_truncate(mode));
        let mut made = make(c"u", 0o755);
        if place != Place::Bottom {
            // Overlayfs replaces the directory in `w` by a new one.
            made = made.and_then(|()| make(c"w", 0o700)).and_then(|()| make(c"w/work", 0o700));
        }
        made.map_err(LayerError::of_errno("make layer"))?;
        image::limit_free(&mount, room)?;
        let own = DiskSpace::used_on(&mount).map_err(LayerError::of_io("measure layer"))?;
        Ok(Self { mount, own, storage: Storage::Disk })
    }

    /// Attaches it.
    pub(in crate::layers) fn attach(self, stage: &Arc<Stage>) -> Result<Layer, LayerError> {
        let (mount, layer) = self.split(stage);
        let path = layer.path().to_owned();
        stage.call("attach layer", move || stage::attach_new(mount, &path))?;
        Ok(layer)
    }

    /// The mount, and the layer once that is attached at the layer's name.
    pub(in crate::layers) fn split(self, stage: &Arc<Stage>) -> (OwnedFd, Layer) {
        let Self { mount, own, storage } = self;
        (mount, Layer { name: stage.name(), own: Mutex::new(own), storage })
    }
}

/// A layer, attached to the stage until it is dropped.
#[derive(Debug)]
pub(in crate::layers) struct Layer {
    name: MountName,
    /// What it uses without entries.
    own: Mutex<DiskSpace>,
    storage: Storage,
}

impl Layer {
    /// Its path on the stage.
    pub(in crate::layers) fn path(&self) -> &str {
        self.name.path()
    }

    /// Where its entries are.
    pub(in crate::layers) fn storage(&self) -> Storage {
        self.storage
    }

    fn own(&self) -> MutexGuard<'_, DiskSpace> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::layers) fn stage(&self) -> &Arc<Stage> {
        self.name.stage()
    }

    /// Opens its root.
    pub(in crate::layers) fn open(&self) -> Result<OwnedFd, LayerError> {
        let path = self.path().to_owned();
        self.stage().call("open layer", move || stage::open_directory(&path, OFlag::O_RDONLY))
    }

    /// Opens the directory with its entries, whose owners are those on disk.
    pub(in crate::layers) fn open_entries(&self) -> Result<OwnedFd, LayerError> {
        let path = format!("{}/u", self.path());
        self.stage().call("open layer", move || stage::open_directory(&path, OFlag::O_RDONLY))
    }

    /// What its entries use. `file` is any file on it, or on an overlay of which it is the top.
    pub(in crate::layers) fn used(&self, file: impl AsFd) -> Result<DiskSpace, LayerError> {
        let used = DiskSpace::used_on(file).map_err(LayerError::of_io("measure layer"))?;
        Ok(used.minus(*self.own()))
    }

    /// From now on nothing can change it, through whatever mount.
    ///
    /// # Errors
    /// [`LayerError::Busy`] if a file is open for writing, or removed and still open.
    pub(in crate::layers) fn freeze(&self) -> Result<(), LayerError> {
        self.freeze_by(|| {})
    }

    /// As [`Layer::freeze`], for the top of `view`.
    pub(in crate::layers) fn freeze_below(&self, view: &View) -> Result<(), LayerError> {
        self.freeze_by(|| view.drop_unused())
    }

    /// Tries until [`BUSY_WAIT`] is over, with `release` before each try but the first two.
    fn freeze_by(&self, release: impl Fn()) -> Result<(), LayerError> {
        let freeze = || self.reconfigure("freeze layer", vec![(c"ro".into(), None)]);
        let frozen = freeze();
        if frozen != Err(LayerError::Busy) {
            return frozen;
        }
        // A view that was dropped may still be there.
        self.stage().settle();
        let deadline = Instant::now() + BUSY_WAIT;
        loop {
            match freeze() {
                Err(LayerError::Busy) if Instant::now() < deadline => {
                    release();
                    thread::sleep(BUSY_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Ends the effect of [`Layer::freeze`].
    pub(in crate::layers) fn thaw(&self) -> Result<(), LayerError> {
        self.reconfigure("thaw layer", vec![(c"rw".into(), None)])
    }

    /// Changes its limits to `room`, or to what it uses if that is more. An image does not become larger
    /// than it was made.
    pub(in crate::layers) fn resize(&self, room: DiskSpace) -> Result<(), LayerError> {
        let root = self.open()?;
        let used = self.used(&root)?;
        if self.storage == Storage::Disk {
            image::limit_free(&root, room.minus(used))?;
            let now = DiskSpace::used_on(&root).map_err(LayerError::of_io("measure layer"))?;
            *self.own() = now.minus(used);
            return Ok(());
        }
        let room =
            DiskSpace { bytes: room.bytes.max(used.bytes), inodes: room.inodes.max(used.inodes) };
        let [size, inodes] = limits(room, self.own().inodes);
        let options = vec![(c"size".into(), Some(size)), (c"nr_inodes".into(), Some(inodes))];
        self.reconfigure("resize layer", options)
    }

    /// Gives it what it needs above others, with room for `room` as [`Layer::resize`] does: one that was made for the
    /// bottom has no `w`. `own_inodes` is as in [`Place::Above`].
    pub(in crate::layers) fn raise(
        &self,
        room: DiskSpace,
        own_inodes: u64,
    ) -> Result<(), LayerError> {
        let root = self.open()?;
        let failed = LayerError::of_errno;
        match fstatat(&root, c"w", AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(failed("raise layer")(errno)),
            Ok(_) => return Ok(()),
        }
        let used = self.used(&root)?;
        self.resize(room.plus(LEAST_ROOM))?;
        mkdirat(&root, c"w", Mode::S_IRWXU).map_err(failed("raise layer"))?;
        mkdirat(&root, c"w/work", Mode::S_IRWXU).map_err(failed("raise layer"))?;
        *self.own() = match self.storage {
            Storage::Memory => DiskSpace { bytes: 0, inodes: own_inodes },
            Storage::Disk => {
                let now = DiskSpace::used_on(&root).map_err(LayerError::of_io("measure layer"))?;
                now.minus(used)
            }
        };
        self.resize(room)
    }

    fn reconfigure(
        &self,
        step: &'static str,
        options: Vec<(CString, Option<CString>)>,
    ) -> Result<(), LayerError> {
        let path = self.path().to_owned();
        self.stage().call(step, move || {
            let root = stage::open_directory(&path, OFlag::O_PATH)?;
            let options: Vec<_> =
                options.iter().map(|(key, value)| (key.as_c_str(), value.as_deref())).collect();
            calls::reconfigure(root.as_fd(), &options).map_err(|error| {
                match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EBUSY) => LayerError::Busy,
                    _ => LayerError::Failed(SetupFailure::from_io(step, &error)),
                }
            })
        })
    }
}

/// The values of a tmpfs's options, with whole pages: the kernel would round up.
fn limits(room: DiskSpace, own_inodes: u64) -> [CString; 2] {
    if weakened::lacks(Wall::Quota) {
        return [c"0".into(), c"0".into()];
    }
    let bytes = (room.bytes / PAGE_BYTES).max(1) * PAGE_BYTES;
    let inodes = room.inodes.saturating_add(own_inodes);
    [bytes, inodes].map(|number| CString::new(number.to_string()).unwrap_or_default())
}
