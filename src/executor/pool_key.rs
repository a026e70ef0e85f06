//! The key of the standby pool: what a prepared sandbox is prepared from.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

use crate::executor::fill::TemplateContents;
use cofferdam_core::{ExcessOutput, Limits, ProgramFile, RunSpec, StdinSource, WorkspaceFill};

/// Everything that two runs must share to use the same prepared sandbox: all but the posted files
/// and the time limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKey {
    /// The directory that the workspace is filled from.
    pub template: PathBuf,
    /// The contents of the directory.
    pub contents: TemplateContents,
    argv: Vec<CString>,
    without_shell: Option<Vec<CString>>,
    env: Vec<CString>,
    workdir: PathBuf,
    limits: Limits,
}

impl PoolKey {
    /// The key of a run of `spec` over `template`. Returns nothing for a run with its own mounts,
    /// input, output or program file.
    pub fn of(template: PathBuf, contents: TemplateContents, spec: &RunSpec) -> Option<Self> {
        let (StdinSource::Null, ProgramFile::Named) = (&spec.stdin, &spec.program) else {
            return None;
        };
        let plain = spec.terminal.is_none() && spec.excess_output == ExcessOutput::Kills;
        if !spec.binds.is_empty() || !spec.tmpfs.is_empty() || !plain {
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

    /// Whether `other` has the same template with newer contents, so that this key is of no use.
    pub fn is_outdated_by(&self, other: &Self) -> bool {
        self.template == other.template && self.contents != other.contents
    }

    /// The limits, without the time limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The program of the prepared sandboxes, without the time limits.
    pub fn spec(&self, workspace: WorkspaceFill) -> RunSpec {
        RunSpec {
            argv: self.argv.clone(),
            without_shell: self.without_shell.clone(),
            env: self.env.clone(),
            workdir: self.workdir.clone(),
            stdin: StdinSource::Null,
            limits: self.limits.clone(),
            workspace,
            ..RunSpec::default()
        }
    }
}
