//! Fills workspaces from templates in the cheapest way.

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
use cofferdam_sandbox::engine::{SandboxFs, SandboxHost};
use cofferdam_tree::{
    Fill, Fingerprint, Owner, Owners, Template, TreeLimits, WorkspaceError, copy_tree, put,
    put_over_template,
};

/// Changes when an entry of the directory is added, renamed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateStamp {
    device: u64,
    inode: u64,
    changed_ns: (i64, i64),
}

/// The best way to fill from each template, found once until the template changes. A stamp is
/// enough, since both ways give the same result.
#[derive(Debug, Default)]
pub struct FillChoices {
    known: Mutex<BTreeMap<PathBuf, (TemplateStamp, Fill)>>,
}

/// What a workspace holds before posted files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateContents {
    /// A copy of the template in the state of this fingerprint.
    Copied(Fingerprint),
    /// An overlay over the template itself, whose files are looked up when a program opens them.
    Below(TemplateStamp),
}

/// The workspace of a sandbox, open for writing until its program begins.
#[derive(Debug)]
pub struct FilledWorkspace {
    workspace: OwnedFd,
    template: Option<(File, PathBuf)>,
    fill: Fill,
    owner: Owner,
}

impl FillChoices {
    /// Identifies how `template` is used and what it holds now.
    pub fn contents(
        &self,
        sandbox: &SandboxHost,
        template: &Path,
    ) -> Result<TemplateContents, SetupFailure> {
        let stamp = stamp(template)?;
        Ok(match self.of(sandbox, template, stamp)? {
            Fill::Overlay => TemplateContents::Below(stamp),
            Fill::Copy => TemplateContents::Copied(scan(template)?.fingerprint),
        })
    }

    /// Fills the workspace of `fs` from `template`; without one the workspace stays empty.
    pub fn fill(
        &self,
        sandbox: &SandboxHost,
        fs: &SandboxFs,
        template: Option<&Path>,
    ) -> Result<FilledWorkspace, SetupFailure> {
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
        Ok(FilledWorkspace { workspace, template, fill, owner })
    }

    fn of(
        &self,
        sandbox: &SandboxHost,
        template: &Path,
        stamp: TemplateStamp,
    ) -> Result<Fill, SetupFailure> {
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

impl TemplateContents {
    /// Whether the workspace is a copy of its own.
    pub fn are_copied(self) -> bool {
        matches!(self, Self::Copied(_))
    }

    /// Whether every later change of the template is certain to show in the contents.
    pub fn are_settled(self) -> bool {
        match self {
            Self::Copied(fingerprint) => fingerprint.is_settled(SystemTime::now()),
            Self::Below(_) => true,
        }
    }
}

impl FilledWorkspace {
    /// Writes `files` over the template.
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

    /// How the sandbox completes the workspace.
    pub fn remaining_fill(&self) -> WorkspaceFill {
        match (&self.template, self.fill) {
            (Some((_, template)), Fill::Overlay) => {
                WorkspaceFill::Overlay { template: template.clone() }
            }
            _ => WorkspaceFill::Own,
        }
    }
}

/// An overlay pays off for large templates. It needs a template with one owner, whose files it shows
/// as the tenant's, and a file system that supports this, which is tried.
fn choose(sandbox: &SandboxHost, template: &Path) -> Result<Fill, SetupFailure> {
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

/// The errno of a system call, or the message of another error.
fn failure(step: String, error: WorkspaceError) -> SetupFailure {
    match error {
        WorkspaceError::System { source, .. } => SetupFailure::from_errno(step, source as i32),
        other => SetupFailure::from_words(step, other.to_string()),
    }
}

fn stamp(template: &Path) -> Result<TemplateStamp, SetupFailure> {
    let read = || -> io::Result<TemplateStamp> {
        let metadata = fs::metadata(template)?;
        let changed_ns = (metadata.ctime(), metadata.ctime_nsec());
        Ok(TemplateStamp { device: metadata.dev(), inode: metadata.ino(), changed_ns })
    };
    read().map_err(|error| SetupFailure::from_io("read workspace", &error))
}

fn open_template(path: &Path) -> Result<File, SetupFailure> {
    File::open(path).map_err(|error| SetupFailure::from_io("open workspace", &error))
}
