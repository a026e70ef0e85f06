//! Runs on disk: made whole or not at all, and used by one process at a time.

mod cell_files;
mod cell_log;
mod error;
mod find;
mod folder;
mod locked_run;
mod manifest;
mod service_files;
mod unfinished;

pub use cell_files::{CellFile, CellFilesDir};
pub use cell_log::CellLog;
pub use error::CaseRunError;
pub use find::{FoundRun, case_file, find_run};
pub use folder::{NewRun, RunFolder};
pub use locked_run::LockedRun;
pub use manifest::{RunDigests, RunManifest, RunOptions};
pub use unfinished::UnfinishedRun;
