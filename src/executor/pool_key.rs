//! What a box made ahead is made from.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

use crate::executor::fill::TemplateContents;
use cofferdam_core::{Limits, ProgramFile, RunSpec, StdinSource, WorkspaceFill};

/// All that two runs have in common when a box made for one would do for the
/// other: everything but the posted files and the times they may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKey {
    /// The directory the workspace is filled from.
    pub template: PathBuf,
    /// What is in it.
    pub contents: TemplateContents,
    argv: Vec<CString>,
    without_shell: Option<Vec<CString>>,
    env: Vec<CString>,
    workdir: PathBuf,
    limits: Limits,
}

impl PoolKey {
    /// Of a run of `spec` over `template`; none where the box shows more than every box.
    pub fn of(template: PathBuf, contents: TemplateContents, spec: &RunSpec) -> Option<Self> {
        let (StdinSource::Null, ProgramFile::Named) = (&spec.stdin, &spec.program) else {
            return None;
        };
        if !spec.binds.is_empty() || !spec.tmpfs.is_empty() {
            return None;
        }
        Some(Self {
            template,
            contents,
            argv: spec.argv.clone(),
            without_shell: spec.without_shell.clone(),
            env: spec.env.clone(),
            workdir: spec.workdir.clone(),
            limits: spec.limits.clone().with_wall(Duration::ZERO),
        })
    }

    /// Whether this is of another state of `other`'s template: of no use any more.
    pub fn is_outdated_by(&self, other: &Self) -> bool {
        self.template == other.template && self.contents != other.contents
    }

    /// The bounds, but for the times.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What its boxes run, once their times are known.
    pub fn spec(&self, workspace: WorkspaceFill) -> RunSpec {
        RunSpec {
            argv: self.argv.clone(),
            program: ProgramFile::Named,
            without_shell: self.without_shell.clone(),
            env: self.env.clone(),
            workdir: self.workdir.clone(),
            stdin: StdinSource::Null,
            limits: self.limits.clone(),
            workspace,
            binds: Vec::new(),
            tmpfs: Vec::new(),
        }
    }
}
