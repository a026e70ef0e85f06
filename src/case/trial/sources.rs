//! The source of a Case, prepared once for all its Cells.

use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{getegid, geteuid};
use tempfile::TempDir;

use super::error::{TrialStep, TrialStop};
use super::settings::{TrialParts, TrialSettings};
use crate::case::cell::{CellBase, ExecError};
use crate::case::provision::ProvisionedEnvironment;
use crate::case::source::{
    CaseDirLimits, CloneParts, PreparedSource, SourceError, SourceFault, SourceParts, SourcePlan,
    copy_case_dir, hidden_names,
};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::{Owner, StopCheck};

use crate::evaluation::cache::is_raised;

/// How long a source may take.
pub const SOURCE_TIMEOUT: Duration = Duration::from_mins(15);
const DIRECTORY_MODE: u32 = 0o755;

/// All that the Cells of a Case begin with.
#[derive(Debug)]
pub struct SourceBase {
    /// The files of a Cell without an environment.
    pub base: CellBase,
    /// The source.
    pub source: PreparedSource,
    /// The repository with the hidden files, if the Case has them in one.
    fixtures: Option<PreparedSource>,
    /// The copy of the Case's directory that provisioning and setup see.
    case_directory: TempDir,
    /// The digest of that copy.
    pub case_digest: String,
    /// The directory of the Case.
    directory: PathBuf,
}

/// A source with an environment, that Cells share.
#[derive(Debug, Clone)]
pub struct SharedEnvironment {
    /// The files.
    pub base: CellBase,
    /// The environment.
    pub made: ProvisionedEnvironment,
}

impl SourceBase {
    /// Prepares all of it.
    ///
    /// # Errors
    /// A file cannot be read, or a repository cannot be cloned.
    pub fn prepare(
        settings: &TrialSettings,
        parts: &TrialParts,
        cancel: &CancelToken,
    ) -> Result<Self, TrialStop> {
        let deadline = Deadline::after(SOURCE_TIMEOUT);
        let log = settings.egress.log();
        let clones = CloneParts {
            repositories: &parts.repositories,
            root: &parts.root,
            owner: &settings.owner,
            local: &parts.local,
            egress: &log,
        };
        let scratch = &settings.scratch;
        let needed = SourceParts { scratch, clones: Some(clones), cancel, deadline };
        let plan = SourcePlan::of(&settings.case, settings.executor);
        let failed = |error: SourceError| stop_of(&error, settings);
        let source = PreparedSource::prepare(&plan, &needed).map_err(failed)?;
        let fixtures = PreparedSource::prepare_fixtures(&settings.case, &needed).map_err(failed)?;
        let is_over = || is_raised(cancel) || deadline.passed();
        let stop = StopCheck(&is_over);
        let base = parts.trees.base(|sandbox, owner| {
            source
                .copy_to(sandbox, owner, stop)
                .map(drop)
                .map_err(|error| ExecError::failed("copy source", error))
        });
        let base = base.map_err(|error| TrialStop::of_cell(TrialStep::Source, &error))?;
        let (case_directory, case_digest) = copy_of_case(settings, stop)
            .map_err(|words| TrialStop::failed(TrialStep::Source, words))?;
        let directory = settings.directory().to_owned();
        Ok(Self { base, source, fixtures, case_directory, case_digest, directory })
    }

    /// Copies the source to the empty directory `sandbox` of this host, for the caller.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn copy_to(&self, sandbox: &Path) -> Result<(), TrialStop> {
        let deadline = Deadline::after(SOURCE_TIMEOUT);
        let opened = File::open(sandbox)
            .map_err(|error| TrialStop::failed(TrialStep::Source, error.to_string()))?;
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let copied = self.source.copy_to(opened.as_fd(), owner, StopCheck(&|| deadline.passed()));
        copied.map(drop).map_err(|error| TrialStop::of_source(&error))
    }

    /// The directory that provisioning and setup see.
    pub fn shown(&self) -> PathBuf {
        self.case_directory.path().join(SHOWN)
    }

    /// The directory with the hidden files of graders.
    pub fn hidden(&self) -> PathBuf {
        let fixtures = self.fixtures.as_ref().and_then(PreparedSource::directory);
        fixtures.map_or_else(|| self.directory.clone(), |opened| path_of(&opened))
    }
}

/// The name of the copy in its directory, which others cannot enter.
const SHOWN: &str = "case";

fn copy_of_case(
    settings: &TrialSettings,
    stop: StopCheck<'_>,
) -> Result<(TempDir, String), String> {
    let words = |error: std::io::Error| format!("the directory of the Case: {error}");
    let place = tempfile::tempdir_in(&settings.scratch).map_err(words)?;
    let target = place.path().join(SHOWN);
    DirBuilder::new().mode(DIRECTORY_MODE).create(&target).map_err(words)?;
    let opened = File::open(&target).map_err(words)?;
    let file_name = settings.case_path.file_name().unwrap_or_default();
    let hidden = hidden_names(&settings.case, Path::new(file_name));
    let left_out = (&*settings.left_out, CaseDirLimits::default());
    let digest = copy_case_dir(settings.directory(), opened.as_fd(), &hidden, left_out, stop);
    Ok((place, digest.map_err(|error| error.to_string())?))
}

/// How `error` ends a trial.
pub(super) fn stop_of(error: &SourceError, settings: &TrialSettings) -> TrialStop {
    match &error.fault {
        SourceFault::Cancelled => TrialStop::Cancelled,
        _ if error.skips(settings.case.availability) => TrialStop::Skipped(error.to_string()),
        _ => TrialStop::of_source(error),
    }
}

/// A path of an open directory.
fn path_of(directory: &BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}
