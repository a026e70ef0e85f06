//! Workspaces filled from templates, by the way that costs least.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{SetupFailure, WorkspaceFill};
use cofferdam_sandbox::{Sandbox, SandboxFs};
use cofferdam_tree::{
    Fill, Fingerprint, Owner, Owners, Template, TreeLimits, WorkspaceError, copy_tree, put,
    put_over_template,
};

/// Changes when an entry of the directory itself does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    changed_ns: (i64, i64),
}

/// The ways templates are best filled from, learnt once for each until it
/// changes. A stamp is enough for a choice between two that give the same result.
#[derive(Debug, Default)]
pub struct Fills {
    known: Mutex<BTreeMap<PathBuf, (Stamp, Fill)>>,
}

/// What a box's workspace is filled with before anybody posts files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// A copy of the template as it was when it had this mark.
    Copied(Fingerprint),
    /// The template itself lies below; all of it but its place is looked up when a program asks.
    Below(Stamp),
}

/// The workspace of a box, open to be written into until its program begins.
#[derive(Debug)]
pub struct Filled {
    workspace: OwnedFd,
    template: Option<(File, PathBuf)>,
    fill: Fill,
    owner: Owner,
}

impl Fills {
    /// How `template` is filled from, and what it holds now.
    pub fn contents(&self, sandbox: &Sandbox, template: &Path) -> Result<Contents, SetupFailure> {
        let stamp = stamp(template)?;
        Ok(match self.of(sandbox, template, stamp)? {
            Fill::Overlay => Contents::Below(stamp),
            Fill::Copy => Contents::Copied(scan(template)?.fingerprint),
        })
    }

    /// Fills the workspace of `fs` from `template`; an empty one where none is given.
    pub fn fill(
        &self,
        sandbox: &Sandbox,
        fs: &SandboxFs,
        template: Option<&Path>,
    ) -> Result<Filled, SetupFailure> {
        let fill = match template {
            Some(template) => self.of(sandbox, template, stamp(template)?)?,
            None => Fill::Copy,
        };
        let workspace = fs.workspace(fill == Fill::Overlay)?;
        let owner = Owner { uid: fs.tenant(), gid: fs.tenant() };
        let template = template.map(|path| Ok((open_template(path)?, path.to_owned())));
        let template = template.transpose()?;
        if let (Some((source, _)), Fill::Copy) = (&template, fill) {
            copy_tree(source.as_fd(), workspace.as_fd(), owner, &TreeLimits::default())
                .map_err(|error| failure("copy workspace".to_owned(), error))?;
        }
        Ok(Filled { workspace, template, fill, owner })
    }

    fn of(&self, sandbox: &Sandbox, template: &Path, stamp: Stamp) -> Result<Fill, SetupFailure> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, fill)) = known().get(template)
            && *of == stamp
        {
            return Ok(*fill);
        }
        let fill = choose(sandbox, template)?;
        known().insert(template.to_owned(), (stamp, fill));
        Ok(fill)
    }
}

impl Contents {
    /// Whether a template that changes from now on cannot but have other contents.
    pub fn are_settled(self) -> bool {
        match self {
            Self::Copied(mark) => mark.is_settled(SystemTime::now()),
            Self::Below(_) => true,
        }
    }
}

impl Filled {
    /// Writes `files` over what is there.
    pub fn put(&self, files: &[(&RelPath, &[u8])]) -> Result<(), SetupFailure> {
        let workspace = self.workspace.as_fd();
        for (path, contents) in files {
            match (&self.template, self.fill) {
                (Some((source, _)), Fill::Overlay) => {
                    put_over_template(workspace, source.as_fd(), path, contents, self.owner)
                }
                _ => put(workspace, path, contents, self.owner),
            }
            .map_err(|error| failure(format!("write {path}"), error))?;
        }
        Ok(())
    }

    /// What is left for the box to do.
    pub fn left_to_do(&self) -> WorkspaceFill {
        match (&self.template, self.fill) {
            (Some((_, template)), Fill::Overlay) => {
                WorkspaceFill::Overlay { template: template.clone() }
            }
            _ => WorkspaceFill::Own,
        }
    }
}

/// An overlay pays for large templates. It needs one owner, whose files it
/// then shows as the tenant's, and a file system that can do that: tried.
fn choose(sandbox: &Sandbox, template: &Path) -> Result<Fill, SetupFailure> {
    let scanned = scan(template)?;
    if scanned.fill() == Fill::Copy || scanned.owners == Owners::Several {
        return Ok(Fill::Copy);
    }
    match sandbox.try_workspace(WorkspaceFill::Overlay { template: template.to_owned() }) {
        Ok(()) => Ok(Fill::Overlay),
        Err(failure) => {
            log::info!("{} is copied for every run: {failure}", template.display());
            Ok(Fill::Copy)
        }
    }
}

fn scan(template: &Path) -> Result<Template, SetupFailure> {
    Template::scan(template).map_err(|error| failure("read workspace".to_owned(), error))
}

/// The kernel's reason where there is one; the words of anything else.
fn failure(step: String, error: WorkspaceError) -> SetupFailure {
    match error {
        WorkspaceError::System { source, .. } => SetupFailure::from_errno(step, source as i32),
        other => SetupFailure::from_words(step, other.to_string()),
    }
}

fn stamp(template: &Path) -> Result<Stamp, SetupFailure> {
    let read = || -> io::Result<Stamp> {
        let metadata = fs::metadata(template)?;
        let changed_ns = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Stamp { device: metadata.dev(), inode: metadata.ino(), changed_ns })
    };
    read().map_err(|error| SetupFailure::from_io("read workspace", &error))
}

fn open_template(path: &Path) -> Result<File, SetupFailure> {
    File::open(path).map_err(|error| SetupFailure::from_io("open workspace", &error))
}
