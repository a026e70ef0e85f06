//! Files of the service that sandboxes see read-only: prompt, agent, tests.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::evaluation::cache::is_raised;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Bind, SetupFailure};
use cofferdam_tree::{Removal, StopCheck, WorkspaceError, remove_tree_until};
use uuid::Uuid;

/// How long the removal of a cancelled evaluation's files may delay its end.
const REMOVAL_TIME: Duration = Duration::from_millis(300);
/// Removals that go on behind the ends of their evaluations.
const REMOVALS_MAX: usize = 8;
static REMOVALS: AtomicUsize = AtomicUsize::new(0);

/// A directory of this host that is removed when this is dropped: with `cancel` raised, what takes long is
/// removed by a thread of its own.
#[derive(Debug)]
pub struct StagingDirectory {
    root: PathBuf,
    cancel: CancelToken,
}

impl StagingDirectory {
    /// Makes an empty one in `parent`, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(parent: &Path, cancel: CancelToken) -> Result<Self, SetupFailure> {
        let made = || {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            let root = fs::canonicalize(parent)?.join(Uuid::new_v4().simple().to_string());
            DirBuilder::new().mode(0o700).create(&root)?;
            Ok(root)
        };
        let root = made().map_err(cannot("make staging directory"))?;
        Ok(Self { root, cancel })
    }

    /// Where it is: absolute, without links.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Writes a file that everybody may read to `path` below.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path, contents: impl Read) -> Result<(), SetupFailure> {
        self.write_until(path, contents, StopCheck::never())
    }

    fn write_until(
        &self,
        path: &Path,
        mut contents: impl Read,
        stop: StopCheck<'_>,
    ) -> Result<(), SetupFailure> {
        let place = self.root.join(path);
        let mut written = || {
            if let Some(parent) = place.parent() {
                DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            }
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o755).open(&place)?;
            stop.copy(&mut contents, &mut file)
        };
        written().map_err(cannot("write staged file"))
    }

    /// As [`Self::write`], in place of a file that is there.
    ///
    /// # Errors
    /// The old one cannot be removed, or the new one written.
    pub fn replace(&self, path: &Path, contents: impl Read) -> Result<(), SetupFailure> {
        match fs::remove_file(self.root.join(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(cannot("replace staged file")(error))
            }
            _ => self.write(path, contents),
        }
    }

    /// Copies the regular files below `source` to `path` below.
    ///
    /// # Errors
    /// One cannot be read or written, or `stop` ended it.
    pub fn copy_files(
        &self,
        source: &Path,
        path: &Path,
        stop: StopCheck<'_>,
    ) -> Result<(), SetupFailure> {
        let mut pending = vec![PathBuf::new()];
        while let Some(below) = pending.pop() {
            let entries = fs::read_dir(source.join(&below)).map_err(cannot("list tests"))?;
            for entry in entries {
                stop.check_io().map_err(cannot("copy tests"))?;
                let entry = entry.map_err(cannot("list tests"))?;
                let (kind, below) = (
                    entry.file_type().map_err(cannot("list tests"))?,
                    below.join(entry.file_name()),
                );
                if kind.is_dir() {
                    pending.push(below);
                } else if kind.is_file() {
                    let file = File::open(entry.path()).map_err(cannot("read test"))?;
                    self.write_until(&path.join(below), file, stop)?;
                }
            }
        }
        Ok(())
    }

    /// Shows the directory `path` below at `target`, read-only.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn bind(&self, path: &str, target: &str) -> Result<Bind, SetupFailure> {
        let source = self.root.join(path);
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&source)
            .map_err(cannot("make staging directory"))?;
        Ok(Bind { source, target: target.into(), read_only: true })
    }
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        let began = Instant::now();
        let is_late = || began.elapsed() > REMOVAL_TIME && is_raised(&self.cancel);
        if !remove(&self.root, StopCheck(&is_late)) && !remove_behind(self.root.clone()) {
            remove(&self.root, StopCheck::never());
        }
    }
}

/// Removes the directory `root`; returns false if `stop` ended that.
fn remove(root: &Path, stop: StopCheck<'_>) -> bool {
    let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else { return true };
    let removed = File::open(parent).map_err(|error| error.to_string()).and_then(|parent| {
        match remove_tree_until(parent.as_fd(), name, stop) {
            Ok(Removal { left: 0, .. }) => Ok(true),
            Ok(Removal { left, .. }) => Err(format!("{left} entries are left")),
            Err(WorkspaceError::Stopped) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    });
    removed.unwrap_or_else(|words| {
        log::error!("remove {}: {words}", root.display());
        true
    })
}

/// Removes the directory in a thread of its own; returns false if there are too many. What a process does not
/// get to remove goes with its directory.
fn remove_behind(root: PathBuf) -> bool {
    if REMOVALS.fetch_add(1, Ordering::Relaxed) >= REMOVALS_MAX {
        REMOVALS.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    let remove = move || {
        remove(&root, StopCheck::never());
        REMOVALS.fetch_sub(1, Ordering::Relaxed);
    };
    let started = thread::Builder::new().name("removal".to_owned()).spawn(remove);
    if started.is_err() {
        REMOVALS.fetch_sub(1, Ordering::Relaxed);
    }
    started.is_ok()
}

fn cannot(step: &'static str) -> impl Fn(io::Error) -> SetupFailure {
    move |error| SetupFailure::from_io(step, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_removed_whether_the_evaluation_was_cancelled_or_not_and_copies_can_be_stopped() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source");
        fs::create_dir_all(source.join("d")).unwrap();
        for number in 0..20 {
            fs::write(source.join(format!("d/{number}")), "x").unwrap();
        }
        for is_cancelled in [false, true] {
            let cancel = CancelToken::new().unwrap();
            let parent = place.path().join("staging");
            let staging = StagingDirectory::create(&parent, cancel.clone()).unwrap();
            staging.copy_files(&source, Path::new("all"), StopCheck::never()).unwrap();
            assert_eq!(fs::read_dir(staging.path().join("all/d")).unwrap().count(), 20);
            let asked = std::cell::Cell::new(0);
            let is_over = || {
                asked.set(asked.get() + 1);
                asked.get() >= 10
            };
            let stopped = staging.copy_files(&source, Path::new("part"), StopCheck(&is_over));
            assert!(stopped.is_err());
            assert_eq!(asked.get(), 10);
            if is_cancelled {
                cancel.cancel();
            }
            drop(staging);
            assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_is_removed_behind_an_end_is_gone_in_the_end() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("r");
        fs::create_dir_all(root.join("d")).unwrap();
        assert!(!remove(&root, StopCheck(&|| true)));
        assert!(root.exists());
        assert!(remove_behind(root.clone()));
        let began = Instant::now();
        while root.exists() && began.elapsed() < Duration::from_secs(30) {
            thread::yield_now();
        }
        assert!(!root.exists());
    }
}
