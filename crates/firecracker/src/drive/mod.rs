//! The drive of one job: it carries the workspace to the guest and back.
//!
//! The drive has no file system. The host writes a stream at its start, the guest writes one behind
//! it, and the host parses that as untrusted data. To read an ext4 image from a guest, the host's
//! kernel would have to mount it, and its parser must not see a tenant's bytes.

pub(crate) mod archive;
pub(crate) mod tree_io;
#[cfg(test)]
mod tree_io_tests;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};
use uuid::Uuid;

use self::archive::{ArchiveReader, ArchiveWriter, ENTRY_BYTES_MAX, NAME_BYTES_MAX};
use self::tree_io::{TreeIoError, TreeOrigin, UnpackLimits, pack, unpack};
use cofferdam_core::SetupFailure;
use cofferdam_core::executor::RunInput;
use cofferdam_tree::{Owner, remove_tree};

/// The block size: drives have a whole number of blocks.
const BLOCK_BYTES: u64 = 4096;
/// Space for directories and links besides contents and names.
const SLACK_BYTES: u64 = 1 << 20;
/// The prefix of the names of machines' directories.
pub const PREFIX: &str = "vm-";

/// The directory and the drive of one job. They are removed on drop.
#[derive(Debug)]
pub struct JobDrive {
    work_directory: PathBuf,
    id: String,
    directory: PathBuf,
}

/// The layout of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveLayout {
    /// The size of the workspace's stream, at the start of the drive.
    pub workspace_bytes: u64,
    /// The region for the result: first byte and length.
    pub result: (u64, u64),
}

impl JobDrive {
    /// Creates a directory below `work_directory`.
    pub fn make(work_directory: &Path) -> Result<Self, SetupFailure> {
        let id = Uuid::new_v4().simple().to_string();
        let id = format!("{PREFIX}{}", id.get(..16).unwrap_or(&id));
        let directory = work_directory.join(&id);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(|error| SetupFailure::from_io("work directory", &error))?;
        Ok(Self { work_directory: work_directory.to_owned(), id, directory })
    }

    /// The machine's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of the drive.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    /// Fills the workspace with [`RunInput::fill`] and writes the drive from it.
    pub fn fill(&self, task: &mut RunInput<'_>) -> Result<DriveLayout, SetupFailure> {
        let failed = |error: io::Error| SetupFailure::from_io("scratch drive", &error);
        let place = self.place("in")?;
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        task.fill(place.as_fd(), owner)?;
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        let file = options.open(self.scratch()).map_err(failed)?;
        let mut writer = ArchiveWriter::begin(BufWriter::new(file)).map_err(failed)?;
        pack(place.as_fd(), TreeOrigin::Ours(owner), &mut writer).map_err(drive_failure)?;
        let mut file = writer.into_inner().into_inner().map_err(|error| failed(error.into()))?;
        let workspace_bytes = file.stream_position().map_err(failed)?;
        let division = DriveLayout::of(workspace_bytes, task);
        file.set_len(division.result.0 + division.result.1).map_err(failed)?;
        self.remove("in");
        Ok(division)
    }

    /// Creates an empty drive, for a probe.
    pub fn blank(&self) -> Result<(), SetupFailure> {
        let made = File::create_new(self.scratch()).and_then(|file| file.set_len(BLOCK_BYTES));
        made.map_err(|error| SetupFailure::from_io("scratch drive", &error))
    }

    /// Unpacks the result from the drive to a new directory. The guest must be dead.
    pub fn collected(
        &self,
        division: DriveLayout,
        bounds: UnpackLimits,
    ) -> Result<File, SetupFailure> {
        let failed = |error: io::Error| SetupFailure::from_io("scratch drive", &error);
        let place = self.place("out")?;
        let mut file = File::open(self.scratch()).map_err(failed)?;
        file.seek(SeekFrom::Start(division.result.0)).map_err(failed)?;
        let mut reader = ArchiveReader::begin(BufReader::new(file.take(division.result.1)))
            .map_err(|fault| drive_failure(fault.into()))?;
        unpack(&mut reader, place.as_fd(), TreeOrigin::Theirs, bounds).map_err(drive_failure)?;
        Ok(place)
    }

    /// Creates and opens the directory `name`.
    pub fn place(&self, name: &str) -> Result<File, SetupFailure> {
        let path = self.directory.join(name);
        let made = DirBuilder::new().mode(0o700).create(&path).and_then(|()| File::open(&path));
        made.map_err(|error| SetupFailure::from_io("work directory", &error))
    }

    fn remove(&self, name: &str) {
        remove_below(&self.directory, name);
    }
}

impl Drop for JobDrive {
    fn drop(&mut self) {
        remove_below(&self.work_directory, &self.id);
    }
}

/// Removes `name` of `directory`, and logs what cannot be removed.
pub fn remove_below(directory: &Path, name: &str) {
    let removed = File::open(directory).map_err(|error| error.to_string()).and_then(|open| {
        remove_tree(open.as_fd(), OsStr::new(name)).map_err(|error| error.to_string())
    });
    match removed {
        Ok(removed) if removed.left == 0 => {}
        Ok(removed) => log::error!("{name}: {} entries could not be removed", removed.left),
        Err(error) => log::error!("{name}: {error}"),
    }
}

impl DriveLayout {
    /// The layout with room for everything that `task` may leave.
    fn of(workspace_bytes: u64, task: &RunInput<'_>) -> Self {
        let limits = &task.spec.limits;
        let names = u64::try_from(NAME_BYTES_MAX).unwrap_or(u64::MAX);
        let entries = limits.disk_inodes_max.saturating_add(task.room().inodes);
        // Each page of contents may be a separate record between holes.
        let contents = limits.disk_bytes_max.saturating_add(task.room().bytes);
        let contents = contents.saturating_add(contents / BLOCK_BYTES * ENTRY_BYTES_MAX);
        let bytes = entries
            .saturating_mul(ENTRY_BYTES_MAX + names)
            .saturating_add(contents)
            .saturating_add(SLACK_BYTES);
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        // Far below the largest file size.
        let bytes = bytes.min(1 << 50);
        Self { workspace_bytes, result: (blocks(workspace_bytes), blocks(bytes)) }
    }
}

/// The largest result of a run within the limits of `task`.
pub fn bounds(task: &RunInput<'_>) -> UnpackLimits {
    let limits = &task.spec.limits;
    UnpackLimits {
        entries_max: limits.disk_inodes_max.saturating_add(task.room().inodes),
        bytes_max: limits.disk_bytes_max.saturating_add(task.room().bytes),
        file_bytes_max: limits.file_bytes_max.max(task.room().bytes),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err hands on")]
fn drive_failure(fault: TreeIoError) -> SetupFailure {
    SetupFailure::from_words("scratch drive", fault.to_string())
}

/// A region of the drive, with a bounded size.
#[derive(Debug)]
pub struct DriveRegion {
    file: File,
    left: u64,
}

impl DriveRegion {
    /// The region of `drive` from `first` on, `bytes` long.
    pub fn of(mut drive: File, (first, bytes): (u64, u64)) -> io::Result<Self> {
        drive.seek(SeekFrom::Start(first))?;
        Ok(Self { file: drive, left: bytes })
    }

    /// Flushes all data to the drive.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Write for DriveRegion {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let count = self.file.write(bytes.get(..room).unwrap_or_default())?;
        self.left -= u64::try_from(count).unwrap_or(0).min(self.left);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Removes the leftovers of a killed service from `work_directory`.
pub fn sweep(work_directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(work_directory)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) {
            remove_below(work_directory, name);
        }
    }
    Ok(())
}
