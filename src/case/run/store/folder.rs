//! `<store>/cases`: the runs of a store.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;

use super::cell_files::{CellFilesDir, remove_entry};
use super::error::CaseRunError;
use super::locked_run::{CELLS, LockedRun, MANIFEST};
use super::manifest::{
    MANIFEST_BYTES_MAX, MANIFEST_VERSION, ManifestHead, RunDigests, RunManifest, RunOptions,
};
use super::unfinished::{UNFINISHED, UnfinishedRun};
use crate::case::run::plan::PlannedCell;
use crate::store::{ServiceLock, StoreDir, StoreError};
use cofferdam_core::job::JobId;
use cofferdam_core::values::utc::rfc3339;

const CASES: &str = "cases";
/// The copy of the case file.
const CASE_COPY: &str = "case.yaml";

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct NewRun<'a> {
    /// Its id.
    pub id: JobId,
    /// The case file, with every link followed.
    pub case_path: &'a Path,
    /// Its content.
    pub case_yaml: &'a [u8],
    /// The id of the Case.
    pub case: &'a str,
    /// Digests of the Case and of its source.
    pub digests: RunDigests,
    /// How its Cells are run.
    pub options: RunOptions,
    /// Its Cells, in their order.
    pub cells: Vec<PlannedCell>,
}

/// The runs of a store.
#[derive(Debug)]
pub struct RunFolder {
    pub(super) cases: Arc<StoreDir>,
}

impl RunFolder {
    /// Opens the runs of the store in `store`, and creates what is missing.
    ///
    /// # Errors
    /// The directory cannot be a store.
    pub fn open_or_create(store: &Path) -> Result<Self, CaseRunError> {
        Ok(Self { cases: Arc::new(StoreDir::open_root(store)?.own_child(CASES)?) })
    }

    /// Opens the runs of the store in `store`; nothing if there are none.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(store: &Path) -> Result<Option<Self>, CaseRunError> {
        Self::at(&store.join(CASES))
    }

    /// Opens a directory of runs by its canonical path; nothing if it is not there.
    pub(super) fn at(path: &Path) -> Result<Option<Self>, CaseRunError> {
        let opened = path
            .canonicalize()
            .map_err(|error| crate::store::errno_of(&error))
            .and_then(|path| StoreDir::open(&path));
        match opened {
            Ok(cases) => Ok(Some(Self { cases: Arc::new(cases) })),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => {
                let reason = errno.to_string();
                Err(StoreError::Unusable { path: path.to_owned(), reason }.into())
            }
        }
    }

    /// Makes a run whose Cells are all pending. This process has its lock.
    ///
    /// # Errors
    /// The id is taken, or the disk refuses the run. Nothing is left of it.
    pub fn create(&self, new: &NewRun<'_>) -> Result<LockedRun, CaseRunError> {
        if self.cases.entry(new.id.as_str())?.is_some() {
            return Err(CaseRunError::Taken(new.id.clone()));
        }
        self.complete(self.begin()?, new)
    }

    /// Begins to make a run.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn begin(&self) -> Result<UnfinishedRun, CaseRunError> {
        self.sweep()?;
        UnfinishedRun::make(&self.cases)
    }

    /// Completes a run, whose Cells are all pending. This process has its lock.
    ///
    /// # Errors
    /// As of [`RunFolder::create`].
    pub fn complete(
        &self,
        unfinished: UnfinishedRun,
        new: &NewRun<'_>,
    ) -> Result<LockedRun, CaseRunError> {
        fill(unfinished.directory(), new)?;
        let lock = unfinished.rename(&new.id)?;
        self.cases.sync()?;
        LockedRun::new(self.open_run(new.id.as_str())?, lock)
    }

    /// Takes the lock of the run in the directory `name`.
    ///
    /// # Errors
    /// There is no such run, or another process has its lock.
    pub fn lock(&self, name: &str) -> Result<LockedRun, CaseRunError> {
        LockedRun::lock(self.open_run(name)?)
    }

    /// Whether there is a run in the directory `name`.
    pub fn has(&self, name: &str) -> bool {
        self.cases.child(name).is_ok_and(|run| matches!(run.entry(MANIFEST), Ok(Some(_))))
    }

    /// The directories of the runs of the case file at `case_path`, the newest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn runs_of(&self, case_path: &Path) -> Result<Vec<String>, CaseRunError> {
        let mut heads: Vec<(ManifestHead, String)> = Vec::new();
        for name in self.cases.names()? {
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let head = self.head(name).filter(|head| head.case_path == case_path);
            heads.extend(head.map(|head| (head, name.to_owned())));
        }
        heads.sort();
        Ok(heads.into_iter().rev().map(|(_, name)| name).collect())
    }

    fn head(&self, name: &str) -> Option<ManifestHead> {
        let bytes = self.cases.child(name).ok()?.read(MANIFEST, MANIFEST_BYTES_MAX).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn open_run(&self, name: &str) -> Result<StoreDir, CaseRunError> {
        if !self.has(name) {
            return Err(CaseRunError::Unknown(name.to_owned()));
        }
        Ok(self.cases.child(name).map_err(|errno| self.cases.error("open", name, errno))?)
    }

    /// Removes runs that a killed process has not finished making.
    fn sweep(&self) -> Result<(), CaseRunError> {
        let unfinished =
            |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(UNFINISHED));
        for name in self.cases.names()?.into_iter().filter(unfinished) {
            let Ok(directory) = self.cases.child(&name) else { continue };
            // Its lock is held while it is made.
            if let Ok(_lock) = ServiceLock::take(&directory)
                && let Err(error) = remove_entry(&self.cases, &name)
            {
                log::warn!(reason = error.to_string(); "unfinished run not removed");
            }
        }
        Ok(())
    }
}

/// Writes the files of a new run.
fn fill(directory: &StoreDir, new: &NewRun<'_>) -> Result<(), CaseRunError> {
    let manifest = RunManifest {
        version: MANIFEST_VERSION,
        run_id: new.id.clone(),
        case: new.case.to_owned(),
        case_path: new.case_path.to_owned(),
        created_at: rfc3339(SystemTime::now()),
        digests: new.digests.clone(),
        options: new.options.clone(),
        cells: new.cells.clone(),
    };
    let path = directory.path_of(MANIFEST);
    let refused = |reason: String| StoreError::NotRecordable { path: path.clone(), reason };
    let json = serde_json::to_vec(&manifest).map_err(|error| refused(error.to_string()))?;
    if u64::try_from(json.len()).unwrap_or(u64::MAX) > MANIFEST_BYTES_MAX {
        return Err(refused(format!("more than {MANIFEST_BYTES_MAX} bytes")).into());
    }
    directory.write_new(CASE_COPY, new.case_yaml)?;
    directory.write_new(MANIFEST, &json)?;
    let cells = directory.own_child(CELLS)?;
    for cell in &new.cells {
        CellFilesDir::open(&cells, cell)?.write_pending(cell)?;
    }
    cells.sync()?;
    Ok(directory.sync()?)
}
