//! The local backend: a workspace filled from a template, run in a box.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::base::rel_path::RelPath;
use crate::sandbox::{BoxFs, HostId, Sandbox};
use crate::spec::{NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, Watch, WorkspaceFill};
use crate::workspace::{
    Fill, Owner, Owners, Template, TreeLimits, WorkspaceError, copy_tree, put, put_over_template,
};

/// One run: what is in its workspace, and what is executed there.
#[derive(Debug)]
pub struct Job<'a> {
    /// The directory the workspace is a private copy of; empty where none is given.
    pub template: Option<&'a Path>,
    /// Files written over it.
    pub files: &'a [(&'a RelPath, &'a [u8])],
    /// The program. How its workspace is filled is decided here.
    pub spec: RunSpec,
}

/// Runs jobs in boxes on this host.
#[derive(Debug)]
pub struct Sandboxed {
    sandbox: Sandbox,
    fills: Mutex<BTreeMap<PathBuf, (Stamp, Fill)>>,
}

/// Changes when an entry of the directory itself does. That is enough for a
/// choice between two ways that give the same result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    changed_ns: (i64, i64),
}

impl Sandboxed {
    /// A backend over `sandbox`.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, fills: Mutex::default() }
    }

    /// What boxes are made with.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs `job` as `host_id` to its end on this thread.
    pub fn run(
        &self,
        job: Job<'_>,
        host_id: &HostId,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        let Job { template, files, mut spec } = job;
        let box_fs = self.sandbox.box_fs(&spec.limits, host_id)?;
        spec.workspace = self.fill(template, files, &box_fs)?;
        self.sandbox.start(spec, box_fs, began)?.supervise(watch, sink)
    }

    /// Fills the workspace of `box_fs`; says what is left for the box to do.
    fn fill(
        &self,
        template: Option<&Path>,
        files: &[(&RelPath, &[u8])],
        box_fs: &BoxFs,
    ) -> Result<WorkspaceFill, SetupFailure> {
        let fill = template.map_or(Ok(Fill::Copy), |template| self.fill_for(template))?;
        let overlay = fill == Fill::Overlay;
        let workspace = box_fs.workspace(overlay)?;
        let workspace = workspace.as_fd();
        let owner = Owner { uid: box_fs.tenant(), gid: box_fs.tenant() };
        let opened = template.map(open_template).transpose()?;
        if let (Some(source), Fill::Copy) = (&opened, fill) {
            copy_tree(source.as_fd(), workspace, owner, &TreeLimits::default())
                .map_err(|error| failure("copy workspace".to_owned(), error))?;
        }
        for (path, contents) in files {
            match (&opened, fill) {
                (Some(source), Fill::Overlay) => {
                    put_over_template(workspace, source.as_fd(), path, contents, owner)
                }
                _ => put(workspace, path, contents, owner),
            }
            .map_err(|error| failure(format!("write {path}"), error))?;
        }
        Ok(match template {
            Some(template) if overlay => WorkspaceFill::Overlay { template: template.to_owned() },
            _ => WorkspaceFill::Own,
        })
    }

    /// The way `template` is best copied here, looked up once until it changes.
    fn fill_for(&self, template: &Path) -> Result<Fill, SetupFailure> {
        let stamp =
            Stamp::of(template).map_err(|error| SetupFailure::from_io("read workspace", &error))?;
        let known =
            self.fills.lock().unwrap_or_else(PoisonError::into_inner).get(template).copied();
        if let Some((known_stamp, fill)) = known
            && known_stamp == stamp
        {
            return Ok(fill);
        }
        let fill = self.choose_fill(template)?;
        self.fills
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(template.to_owned(), (stamp, fill));
        Ok(fill)
    }

    /// An overlay pays for large templates. It needs one owner, whose files it
    /// then shows as the tenant's, and a file system that can do that: tried.
    fn choose_fill(&self, template: &Path) -> Result<Fill, SetupFailure> {
        let scanned = Template::scan(template)
            .map_err(|error| failure("read workspace".to_owned(), error))?;
        if scanned.fill() == Fill::Copy || scanned.owners == Owners::Several {
            return Ok(Fill::Copy);
        }
        match self.sandbox.try_fill(WorkspaceFill::Overlay { template: template.to_owned() }) {
            Ok(()) => Ok(Fill::Overlay),
            Err(failure) => {
                log::info!("{} is copied for every run: {failure}", template.display());
                Ok(Fill::Copy)
            }
        }
    }
}

/// The kernel's reason where there is one; the words of anything else.
fn failure(step: String, error: WorkspaceError) -> SetupFailure {
    match error {
        WorkspaceError::System { source, .. } => SetupFailure::from_errno(step, source as i32),
        other => SetupFailure::from_words(step, other.to_string()),
    }
}

impl Stamp {
    fn of(directory: &Path) -> std::io::Result<Self> {
        let metadata = fs::metadata(directory)?;
        Ok(Self { inode: metadata.ino(), changed_ns: (metadata.ctime(), metadata.ctime_nsec()) })
    }
}

fn open_template(path: &Path) -> Result<File, SetupFailure> {
    File::open(path).map_err(|error| SetupFailure::from_io("open workspace", &error))
}
