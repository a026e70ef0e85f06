//! The files of one job on the host: a directory of its own with the drive that its workspace goes
//! to the guest by, and comes back.
//!
//! The drive has no file system. The host writes a stream to its beginning; the guest writes one
//! further on; and the host parses that as it would parse any other message of a stranger. An
//! image of ext4 that a guest has written would have to be mounted by the host's kernel, whose
//! parser is no place for a tenant's bytes.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};
use uuid::Uuid;

use super::archive::{ENTRY_BYTES_MAX, NAME_BYTES_MAX, Reader, Writer};
use super::pack::{Bounds, Tree, TreeFault, pack, unpack};
use cofferdam_core::SetupFailure;
use cofferdam_core::executor::RunInput;
use cofferdam_tree::{Owner, remove_tree};

/// Drives are a whole number of these.
const BLOCK_BYTES: u64 = 4096;
/// What directories and links may take beside contents and names.
const SLACK_BYTES: u64 = 1 << 20;
/// What is put before the name of a machine's directory.
pub const PREFIX: &str = "vm-";

/// Files that go when this is dropped.
#[derive(Debug)]
pub struct JobFiles {
    work_directory: PathBuf,
    id: String,
    directory: PathBuf,
}

/// How a drive is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The workspace, from the beginning.
    pub workspace_bytes: u64,
    /// Where what is left of it goes: first byte and length.
    pub result: (u64, u64),
}

impl JobFiles {
    /// A fresh directory below `work_directory`.
    pub fn make(work_directory: &Path) -> Result<Self, SetupFailure> {
        let id = Uuid::new_v4().simple().to_string();
        let id = format!("{PREFIX}{}", id.get(..16).unwrap_or(&id));
        let directory = work_directory.join(&id);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(|error| SetupFailure::from_io("work directory", &error))?;
        Ok(Self { work_directory: work_directory.to_owned(), id, directory })
    }

    /// The machine's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The drive.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    /// Has `input` fill its workspace, and makes the drive of it.
    pub fn fill(&self, input: &mut RunInput<'_>) -> Result<Division, SetupFailure> {
        let failed = |error: io::Error| SetupFailure::from_io("scratch drive", &error);
        let place = self.place("in")?;
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        input.fill(place.as_fd(), owner)?;
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        let file = options.open(self.scratch()).map_err(failed)?;
        let mut writer = Writer::begin(BufWriter::new(file)).map_err(failed)?;
        pack(place.as_fd(), Tree::Ours(owner), &mut writer).map_err(not_gone_over)?;
        let mut file = writer.into_inner().into_inner().map_err(|error| failed(error.into()))?;
        let workspace_bytes = file.stream_position().map_err(failed)?;
        let division = Division::of(workspace_bytes, input);
        file.set_len(division.result.0 + division.result.1).map_err(failed)?;
        self.remove("in");
        Ok(division)
    }

    /// An empty drive, for a guest that is asked nothing.
    pub fn blank(&self) -> Result<(), SetupFailure> {
        let made = File::create_new(self.scratch()).and_then(|file| file.set_len(BLOCK_BYTES));
        made.map_err(|error| SetupFailure::from_io("scratch drive", &error))
    }

    /// A fresh directory with what the guest has left on the drive; it is dead.
    pub fn collected(&self, division: Division, bounds: Bounds) -> Result<File, SetupFailure> {
        let failed = |error: io::Error| SetupFailure::from_io("scratch drive", &error);
        let place = self.place("out")?;
        let mut file = File::open(self.scratch()).map_err(failed)?;
        file.seek(SeekFrom::Start(division.result.0)).map_err(failed)?;
        let mut reader = Reader::begin(BufReader::new(file.take(division.result.1)))
            .map_err(|fault| not_gone_over(fault.into()))?;
        unpack(&mut reader, place.as_fd(), Tree::Theirs, bounds).map_err(not_gone_over)?;
        Ok(place)
    }

    /// The fresh directory `name`, open.
    pub fn place(&self, name: &str) -> Result<File, SetupFailure> {
        let path = self.directory.join(name);
        let made = DirBuilder::new().mode(0o700).create(&path).and_then(|()| File::open(&path));
        made.map_err(|error| SetupFailure::from_io("work directory", &error))
    }

    fn remove(&self, name: &str) {
        remove_below(&self.directory, name);
    }
}

impl Drop for JobFiles {
    fn drop(&mut self) {
        remove_below(&self.work_directory, &self.id);
    }
}

/// Removes `name` of `directory`; what stays is told.
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

impl Division {
    /// With room for all that `input` may leave.
    fn of(workspace_bytes: u64, input: &RunInput<'_>) -> Self {
        let limits = &input.spec.limits;
        let names = u64::try_from(NAME_BYTES_MAX).unwrap_or(u64::MAX);
        let entries = limits.disk_inodes_max.saturating_add(input.room().inodes);
        // Every page of contents may be a record of its own, between holes.
        let contents = limits.disk_bytes_max.saturating_add(input.room().bytes);
        let contents = contents.saturating_add(contents / BLOCK_BYTES * ENTRY_BYTES_MAX);
        let bytes = entries
            .saturating_mul(ENTRY_BYTES_MAX + names)
            .saturating_add(contents)
            .saturating_add(SLACK_BYTES);
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        // Far below what a file's length can be.
        let bytes = bytes.min(1 << 50);
        Self { workspace_bytes, result: (blocks(workspace_bytes), blocks(bytes)) }
    }
}

/// How much a run within the limits of `input` can leave.
pub fn bounds(input: &RunInput<'_>) -> Bounds {
    let limits = &input.spec.limits;
    Bounds {
        entries_max: limits.disk_inodes_max.saturating_add(input.room().inodes),
        bytes_max: limits.disk_bytes_max.saturating_add(input.room().bytes),
        file_bytes_max: limits.file_bytes_max.max(input.room().bytes),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err hands on")]
fn not_gone_over(fault: TreeFault) -> SetupFailure {
    SetupFailure::from_words("scratch drive", fault.to_string())
}

/// A file that no more is written to than there is room for.
#[derive(Debug)]
pub struct Region {
    file: File,
    left: u64,
}

impl Region {
    /// Of `drive`, from `first` on, so many bytes.
    pub fn of(mut drive: File, (first, bytes): (u64, u64)) -> io::Result<Self> {
        drive.seek(SeekFrom::Start(first))?;
        Ok(Self { file: drive, left: bytes })
    }

    /// Has everything reach the drive.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Write for Region {
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

/// Removes what a service that was killed has left in `work_directory`.
pub fn sweep(work_directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(work_directory)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) {
            remove_below(work_directory, name);
        }
    }
    Ok(())
}
