//! Opens a task: an archive, which is unpacked, or a directory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cofferdam_tree::files::{StrictArchive, StrictError, StrictLimits, StrictRule, unpack_strict};
use cofferdam_tree::{Owner, StopCheck};

use super::convert::convert_harbor;
use super::description::{DESCRIPTION, DESCRIPTION_BYTES_MAX, parse_description};
use super::error::TaskError;
use super::fields::files_path;
use super::harbor::HARBOR;
use super::load::{ReadTask, read_task};
use super::model::Task;
use super::read::host;

/// The limits of a task's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveBounds {
    /// EVAL_ARCHIVE_MAX, bytes.
    pub archive_bytes_max: u64,
    /// EVAL_UNPACKED_MAX, bytes.
    pub unpacked_bytes_max: u64,
}

impl Default for ArchiveBounds {
    fn default() -> Self {
        Self { archive_bytes_max: 100 << 20, unpacked_bytes_max: 1 << 30 }
    }
}

/// A task and the directory that holds its files.
#[derive(Debug)]
pub struct OpenedTask {
    /// The directory of the description: paths of the task are relative to it.
    pub root: PathBuf,
    /// The task.
    pub task: Task,
}

/// Unpacks the archive in `file` into `into` and reads the task. `into` is an empty directory that only the
/// service can reach; its owner removes it, after an error too.
///
/// # Errors
/// The first fault of the archive or the task, or that `stop` ended it. A task without tests is no fault here: see [`Task::check_tests`].
pub fn open_archive(
    file: File,
    into: &Path,
    bounds: ArchiveBounds,
    stop: StopCheck<'_>,
) -> Result<OpenedTask, TaskError> {
    unpack_task(file, into, bounds, stop)?;
    first_fault(into)
}

/// Reads the task in `directory`, which may be a Harbor task: `scratch`, an empty directory, then gets the
/// task that is made of it.
///
/// # Errors
/// As [`open_archive`].
pub fn open_directory(directory: &Path, scratch: &Path) -> Result<OpenedTask, TaskError> {
    first_fault(&task_directory(directory, scratch)?)
}

/// The directory to read for the task in `directory`: itself, or `scratch` with the Harbor task converted.
pub(super) fn task_directory(directory: &Path, scratch: &Path) -> Result<PathBuf, TaskError> {
    let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
    if has(HARBOR) && !has(DESCRIPTION) {
        convert_harbor(directory, scratch)?;
        return Ok(scratch.to_owned());
    }
    Ok(directory.to_owned())
}

fn first_fault(directory: &Path) -> Result<OpenedTask, TaskError> {
    let root = task_root(directory)?;
    let ReadTask { task, faults, .. } = read_task(&root);
    match faults.into_iter().next() {
        None => Ok(OpenedTask { root, task }),
        Some(fault) => Err(fault),
    }
}

/// The directory of the description: `directory` itself, or the only one in it.
pub(super) fn task_root(directory: &Path) -> Result<PathBuf, TaskError> {
    if directory.join(DESCRIPTION).symlink_metadata().is_ok() {
        return Ok(directory.to_owned());
    }
    let listed = directory.read_dir().map_err(|error| host("list", "the task", &error))?;
    let is_directory =
        |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut directories = listed.filter_map(Result::ok).filter(is_directory);
    if let (Some(only), None) = (directories.next(), directories.next())
        && only.path().join(DESCRIPTION).symlink_metadata().is_ok()
    {
        return Ok(only.path());
    }
    Err(TaskError::file(DESCRIPTION, "it is missing at the top and in the only directory"))
}

/// Unpacks the archive in `file` into `into`.
pub(super) fn unpack_task(
    file: File,
    into: &Path,
    bounds: ArchiveBounds,
    stop: StopCheck<'_>,
) -> Result<(), TaskError> {
    let unreadable = |error| host("read", "the archive", &error);
    if file.metadata().map_err(unreadable)?.len() > bounds.archive_bytes_max {
        return Err(TaskError::TooLarge { bytes_max: bounds.archive_bytes_max });
    }
    let archive = StrictArchive::of(file).map_err(of_archive)?;
    let target = File::open(into).map_err(|error| host("open", "the task's directory", &error))?;
    let links_below = |bytes: &[u8]| {
        let description = parse_description(bytes).ok()?;
        files_path(&description.files?).ok()
    };
    let rule = StrictRule {
        manifest: DESCRIPTION,
        manifest_bytes_max: DESCRIPTION_BYTES_MAX,
        links_below: &links_below,
    };
    let owner =
        Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
    let limits = StrictLimits { bytes_max: bounds.unpacked_bytes_max, ..StrictLimits::default() };
    let unpacked = unpack_strict(&archive, rule, target.as_fd(), owner, limits, stop);
    unpacked.map(|_| ()).map_err(of_archive)
}

fn of_archive(error: StrictError) -> TaskError {
    match error {
        StrictError::Unsafe { entry, reason } => {
            TaskError::UnsafeArchive { entry, reason: reason.word() }
        }
        StrictError::Malformed { entry, reason } => TaskError::Invalid {
            file: Some(entry).filter(|entry| !entry.is_empty()),
            line: None,
            field: None,
            reason: reason.to_owned(),
        },
        StrictError::Host(error) => TaskError::Host(error.to_string()),
    }
}
