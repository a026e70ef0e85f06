//! The commands of the workspaces, resolved once and again after a Makefile changes.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::makefile::{Make, ResolveError};

/// The names that `make` looks for, in its order.
const MAKEFILE_NAMES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];

/// The target whose program is executed ahead of a run.
const PRESTART: &str = "prestart";

/// How much of a Makefile is searched for that target, in bytes.
const MAKEFILE_BYTES_MAX: u64 = 1 << 20;

/// A workspace's command, or why it has none.
pub type Resolved = Result<Arc<str>, Arc<ResolveError>>;

/// Resolves workspaces and caches the results, failures included.
///
/// A change shows in the identity, size and time of the Makefile itself. Included files are not
/// watched.
#[derive(Debug, Default)]
pub struct Resolver {
    make: Make,
    /// The outer lock is held for a lookup only, the inner one while `make` runs, so that no
    /// workspace waits for another.
    workspaces: Mutex<HashMap<PathBuf, Arc<Mutex<Option<Remembered>>>>>,
    /// The same for the target `prestart`.
    prestarts: Mutex<HashMap<PathBuf, Arc<Mutex<Option<Remembered>>>>>,
}

#[derive(Debug)]
struct Remembered {
    stamp: MakefileStamps,
    resolved: Resolved,
}

impl Resolver {
    /// Whether `workspace` exists and has a Makefile. Does not run `make`.
    pub fn may_resolve(&self, workspace: &Path) -> bool {
        MakefileStamps::take(workspace).is_ok()
    }

    /// The command of `workspace`. Runs `make` if the command is not known.
    pub fn resolve(&self, workspace: &Path) -> Resolved {
        remembered(&self.workspaces, workspace, || self.make.resolve(workspace, "test"))
    }

    /// The command of the target `prestart` of `workspace`, if it has one. `make` runs only if a
    /// Makefile names it.
    pub fn resolve_prestart(&self, workspace: &Path) -> Option<Arc<str>> {
        let command = remembered(&self.prestarts, workspace, || {
            if !names_prestart(workspace) {
                return Err(ResolveError::NoTarget(PRESTART));
            }
            let command = self.make.resolve(workspace, PRESTART);
            if let Err(error) = &command {
                log::warn!("{}: {error}; its runs start without", workspace.display());
            }
            command
        });
        command.ok()
    }
}

/// What `resolve` returned for `workspace` in its present state.
fn remembered(
    known: &Mutex<HashMap<PathBuf, Arc<Mutex<Option<Remembered>>>>>,
    workspace: &Path,
    resolve: impl FnOnce() -> Result<String, ResolveError>,
) -> Resolved {
    // Taken before `make` reads, so that a change in between shows the next time.
    let stamp = MakefileStamps::take(workspace).map_err(Arc::new)?;
    let slot = Arc::clone(lock(known).entry(workspace.to_owned()).or_default());
    let mut remembered = lock(&slot);
    if let Some(known) = remembered.as_ref().filter(|known| known.stamp == stamp) {
        return known.resolved.clone();
    }
    let resolved = resolve().map(Arc::from).map_err(Arc::new);
    *remembered = Some(Remembered { stamp, resolved: resolved.clone() });
    resolved
}

/// Whether a Makefile of `workspace` has the word `prestart`, as far as it is read.
fn names_prestart(workspace: &Path) -> bool {
    MAKEFILE_NAMES.iter().any(|name| {
        let Ok(file) = fs::File::open(workspace.join(name)) else { return false };
        let mut text = Vec::new();
        let read = file.take(MAKEFILE_BYTES_MAX).read_to_end(&mut text);
        read.is_ok() && text.windows(PRESTART.len()).any(|word| word == PRESTART.as_bytes())
    })
}

/// Locks a mutex whose value is consistent even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Makefiles of a workspace, and their states.
#[derive(Debug, PartialEq, Eq)]
struct MakefileStamps([Option<FileStamp>; MAKEFILE_NAMES.len()]);

#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl MakefileStamps {
    fn take(workspace: &Path) -> Result<Self, ResolveError> {
        if !workspace.is_dir() {
            return Err(ResolveError::NoWorkspace(workspace.to_owned()));
        }
        let files = MAKEFILE_NAMES.map(|name| FileStamp::take(&workspace.join(name)));
        if files.iter().all(Option::is_none) {
            return Err(ResolveError::NoMakefile(workspace.to_owned()));
        }
        Ok(Self(files))
    }
}

impl FileStamp {
    fn take(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::thread;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::TempDir;

    use super::*;
    use crate::check::lang::{AnyOf, LanguageTable};

    /// Adds a line to `runs` each time `make` reads the Makefile.
    const COUNTED: &str = "$(shell echo >>runs)\n";

    fn workspace(makefile: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Makefile"), format!("{COUNTED}{makefile}")).unwrap();
        dir
    }

    fn make_runs(workspace: &TempDir) -> usize {
        fs::read_to_string(workspace.path().join("runs")).unwrap().lines().count()
    }

    #[test]
    fn make_runs_once_until_its_makefile_changes() {
        let resolver = Resolver::default();
        let dir = workspace("test:\n\techo one\n");
        for _ in 0..3 {
            assert_eq!(&*resolver.resolve(dir.path()).unwrap(), "echo one");
        }
        assert_eq!(make_runs(&dir), 1);
        // The same size in the same file: only the time differs.
        let path = dir.path().join("Makefile");
        let later = fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_nanos(1);
        fs::write(&path, format!("{COUNTED}test:\n\techo two\n")).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(&*resolver.resolve(dir.path()).unwrap(), "echo two");
        assert_eq!(make_runs(&dir), 2);
        // Another file that make prefers.
        fs::write(dir.path().join("GNUmakefile"), "test:\n\techo three\n").unwrap();
        assert_eq!(&*resolver.resolve(dir.path()).unwrap(), "echo three");
    }

    #[test]
    fn a_replaced_makefile_of_the_same_size_and_time_is_seen() {
        let resolver = Resolver::default();
        let dir = workspace("test:\n\techo one\n");
        let path = dir.path().join("Makefile");
        resolver.resolve(dir.path()).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, format!("{COUNTED}test:\n\techo two\n")).unwrap();
        OpenOptions::new().write(true).open(&other).unwrap().set_modified(modified).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(&*resolver.resolve(dir.path()).unwrap(), "echo two");
    }

    #[test]
    fn a_failure_is_remembered_and_forgotten_like_a_command() {
        let resolver = Resolver::default();
        let dir = workspace("all:\n\techo\n");
        for _ in 0..3 {
            let refused = resolver.resolve(dir.path()).unwrap_err();
            assert!(matches!(*refused, ResolveError::NoTarget(_)));
        }
        assert_eq!(make_runs(&dir), 1);
        fs::write(dir.path().join("Makefile"), "test:\n\techo mended\n").unwrap();
        assert_eq!(&*resolver.resolve(dir.path()).unwrap(), "echo mended");
    }

    #[test]
    fn a_missing_directory_and_a_missing_makefile_are_told_apart() {
        let resolver = Resolver::default();
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        let refused = resolver.resolve(&inner).unwrap_err();
        assert_eq!(refused.to_string(), format!("no workspace at {}", inner.display()));
        fs::create_dir(&inner).unwrap();
        let refused = resolver.resolve(&inner).unwrap_err();
        assert_eq!(refused.to_string(), format!("no Makefile in {}", inner.display()));
        fs::write(inner.join("makefile"), "test:\n\techo here\n").unwrap();
        assert_eq!(&*resolver.resolve(&inner).unwrap(), "echo here");
    }

    #[test]
    fn every_workspace_shipped_is_a_language_and_resolves() {
        let langs = Path::new(env!("CARGO_MANIFEST_DIR")).join("langs");
        let table = LanguageTable::load(&langs).unwrap();
        let entries = fs::read_dir(&langs).unwrap().map(|entry| entry.unwrap().path());
        // The builds of the toolchains are in the same directory.
        let workspaces: Vec<PathBuf> =
            entries.filter(|path| path.is_dir() && !path.ends_with("toolchains")).collect();
        assert!(!workspaces.is_empty());
        for workspace in workspaces {
            let language = table.get(workspace.file_name().unwrap().to_str().unwrap()).unwrap();
            assert!(workspace.join(language.folder.as_path()).is_dir(), "{}", language.slug);
            let command = Resolver::default().resolve(&workspace).unwrap();
            let mut names = language.requires.iter().flat_map(AnyOf::names);
            assert!(names.any(|name| command.contains(name)), "{}: {command}", language.slug);
        }
    }

    #[test]
    fn no_workspace_waits_for_the_make_of_another() {
        let resolver = Resolver::default();
        let slow = workspace("test:\n\techo $(shell cat gate)\n");
        let quick = workspace("test:\n\techo quick\n");
        let gate = slow.path().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| resolver.resolve(slow.path()));
            // Opens once make's reader has: from here on the slow one is inside make.
            let writer = OpenOptions::new().write(true).open(&gate).unwrap();
            assert_eq!(&*resolver.resolve(quick.path()).unwrap(), "echo quick");
            assert!(!waiting.is_finished());
            drop(writer);
            assert_eq!(&*waiting.join().unwrap().unwrap(), "echo ");
        });
    }
}
