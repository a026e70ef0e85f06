//! The key of the standby pool: what a prepared sandbox is prepared from.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

use crate::executor::fill::TemplateContents;
use crate::executor::mounted_key::MountedKey;
use cofferdam_core::{
    ExcessOutput, Limits, Prestart, ProgramFile, RunSpec, StdinSource, WorkspaceFill,
};

/// Sandboxes of a template that no run used for this long are discarded.
const TEMPLATE_UNUSED_MAX: Duration = Duration::from_secs(300);
/// The same for those of a mounted workspace, which has nothing alive while it is idle.
const MOUNTED_UNUSED_MAX: Duration = Duration::from_secs(5);
/// The same for one whose program is executed ahead: so long a client may take from the creation of its
/// workspace to its first code.
const AHEAD_UNUSED_MAX: Duration = Duration::from_secs(60);

/// Everything that two runs must share to use the same prepared sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolKey {
    /// The program runs over a template.
    Template(TemplateKey),
    /// The program runs over a workspace that outlives it.
    Mounted(MountedKey),
}

/// The key of runs over a template: all but the posted files and the time limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateKey {
    /// The directory that the workspace is filled from.
    pub template: PathBuf,
    /// The contents of the directory.
    pub contents: TemplateContents,
    argv: Vec<CString>,
    /// The program that is executed ahead of the run instead, if one is.
    prestart: Option<Prestart>,
    without_shell: Option<Vec<CString>>,
    env: Vec<CString>,
    workdir: PathBuf,
    limits: Limits,
}

impl PoolKey {
    /// Whether `other` has the same template with newer contents, so that this key is of no use.
    pub fn is_outdated_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Template(own), Self::Template(other)) => {
                own.template == other.template && own.contents != other.contents
            }
            _ => false,
        }
    }

    /// Whether sandboxes of this key show that mounted workspace.
    pub fn is_of_workspace(&self, number: u64) -> bool {
        matches!(self, Self::Mounted(key) if key.number() == number)
    }

    /// How many of `runs` runs, `at_once` of them at once, a sandbox is prepared for. Many mounted
    /// workspaces see one program only, so it is the second that is prepared for, and one at a time.
    pub fn wanted(&self, runs: usize, at_once: usize) -> usize {
        match self {
            Self::Template(_) => at_once,
            // One before the first, if that is expected.
            Self::Mounted(key) if key.label().is_some() && runs == 0 => at_once.min(1),
            Self::Mounted(_) if runs < 2 => 0,
            Self::Mounted(_) => at_once.min(1),
        }
    }

    /// What its sandboxes are counted as, if their programs are executed ahead.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Template(key) => key.label(),
            Self::Mounted(key) => key.label(),
        }
    }

    /// How long sandboxes are kept that no run uses.
    pub fn unused_max(&self) -> Duration {
        match self {
            Self::Template(_) => TEMPLATE_UNUSED_MAX,
            Self::Mounted(key) if key.label().is_some() => AHEAD_UNUSED_MAX,
            Self::Mounted(_) => MOUNTED_UNUSED_MAX,
        }
    }
}

impl TemplateKey {
    /// The key of a run of `spec` over `template`. Returns nothing for a run with its own mounts,
    /// input, output, program file or way out.
    pub fn of(template: PathBuf, contents: TemplateContents, spec: &RunSpec) -> Option<Self> {
        let (StdinSource::Null, ProgramFile::Named) = (&spec.stdin, &spec.program) else {
            return None;
        };
        let plain = spec.terminal.is_none()
            && spec.egress.is_none()
            && spec.excess_output == ExcessOutput::Kills;
        if !spec.binds.is_empty() || !spec.tmpfs.is_empty() || !plain {
            return None;
        }
        Some(Self {
            template,
            contents,
            argv: spec.argv.clone(),
            prestart: None,
            without_shell: spec.without_shell.clone(),
            env: spec.env.clone(),
            workdir: spec.workdir.clone(),
            limits: spec.limits.clone().with_wall(Duration::ZERO),
        })
    }

    /// The key of sandboxes in which `prestart` waits for such a run.
    pub fn prestarted(&self, prestart: Prestart) -> Self {
        Self { prestart: Some(prestart), ..self.clone() }
    }

    /// What prestarted sandboxes are counted as.
    pub fn label(&self) -> Option<&str> {
        self.prestart.as_ref().map(|prestart| prestart.label.as_str())
    }

    /// The limits, without the time limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The program of the prepared sandboxes, without the time limits.
    pub fn spec(&self, workspace: WorkspaceFill) -> RunSpec {
        let (argv, without_shell) = match &self.prestart {
            Some(prestart) => (prestart.argv.clone(), None),
            None => (self.argv.clone(), self.without_shell.clone()),
        };
        RunSpec {
            argv,
            without_shell,
            env: self.env.clone(),
            workdir: self.workdir.clone(),
            stdin: StdinSource::Null,
            limits: self.limits.clone(),
            workspace,
            ..RunSpec::default()
        }
    }
}
