//! The key of programs over a workspace that outlives them, and where its sandboxes get their mounts from.

use std::ffi::CString;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    ExcessOutput, Limits, MountedWorkspace, Prestart, ProgramFile, RunSpec, SetupFailure,
    StdinSource, WorkspaceFill,
};
use cofferdam_sandbox::engine::HostId;

/// The mounts of a workspace for one sandbox, and the host id that all its sandboxes share.
#[derive(Debug)]
pub struct MountedView {
    /// The mounts.
    pub mounts: MountedWorkspace,
    /// The host id.
    pub host_id: HostId,
    /// What lends the host id, until the sandbox is dead.
    pub lender: Retained,
}

/// Where sandboxes of a workspace get their mounts from.
pub trait MountSource: Debug + Send + Sync {
    /// Mounts for one more sandbox, without waiting. None while the mounts are exchanged.
    ///
    /// # Errors
    /// The kernel refused a step.
    fn view(&self) -> Result<Option<MountedView>, SetupFailure>;

    /// Whether an interpreter loads no files of clients before it executes code, without waiting. False
    /// while the mounts are exchanged.
    fn is_untouched(&self) -> bool {
        false
    }
}

/// A workspace, as the standby pool knows it.
#[derive(Debug, Clone)]
pub struct MountedIdentity {
    /// The number of its file system: no other has it.
    pub number: u64,
    /// Gives the mounts while the workspace lives.
    pub source: Weak<dyn MountSource>,
}

/// The key of programs over a mounted workspace.
#[derive(Debug, Clone)]
pub struct MountedKey {
    identity: MountedIdentity,
    limits: Limits,
    excess_output: ExcessOutput,
    /// The program that is executed ahead, if one is.
    ahead: Option<ProgramAhead>,
}

/// A program that is executed before it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProgramAhead {
    prestart: Prestart,
    env: Vec<CString>,
    workdir: PathBuf,
}

/// No two file systems have the same number, so their sources need not be compared.
impl PartialEq for MountedKey {
    fn eq(&self, other: &Self) -> bool {
        let key = |key: &Self| (key.identity.number, key.excess_output);
        key(self) == key(other) && self.limits == other.limits && self.ahead == other.ahead
    }
}

impl Eq for MountedKey {}

impl MountedKey {
    /// The key of a program in that workspace. Returns nothing for one with its own mounts, certificates,
    /// input, terminal or program file.
    pub(super) fn of(identity: MountedIdentity, spec: &RunSpec) -> Option<Self> {
        let (StdinSource::Null, ProgramFile::Named) = (&spec.stdin, &spec.program) else {
            return None;
        };
        let shows_files = spec.egress.as_ref().is_some_and(|egress| egress.shows_files());
        let mounts = !spec.binds.is_empty() || !spec.tmpfs.is_empty() || shows_files;
        if mounts || spec.terminal.is_some() {
            return None;
        }
        Some(Self {
            identity,
            limits: Limits { cpu_total_max: None, ..spec.limits.clone().with_wall(Duration::ZERO) },
            excess_output: spec.excess_output,
            ahead: None,
        })
    }

    /// The key of a program that may be executed ahead. Returns nothing for one that may not, or has a
    /// way out.
    pub(super) fn ahead(identity: MountedIdentity, spec: &RunSpec) -> Option<Self> {
        let prestart = spec.prestart.clone().filter(|_| spec.egress.is_none())?;
        let (env, workdir) = (spec.env.clone(), spec.workdir.clone());
        let ahead = Some(ProgramAhead { prestart, env, workdir });
        Some(Self { ahead, ..Self::of(identity, spec)? })
    }

    /// What a program executed ahead is counted as.
    pub fn label(&self) -> Option<&str> {
        self.ahead.as_ref().map(|ahead| ahead.prestart.label.as_str())
    }

    /// Whether an interpreter loads no files of clients before it executes code.
    pub fn is_untouched(&self) -> bool {
        self.identity.source.upgrade().is_some_and(|source| source.is_untouched())
    }

    /// Whether a program of the same workspace has this key.
    pub fn fits(&self, spec: &RunSpec) -> bool {
        Self::of(self.identity.clone(), spec).as_ref() == Some(self)
    }

    /// The number of the workspace's file system.
    pub fn number(&self) -> u64 {
        self.identity.number
    }

    /// Mounts for a sandbox. None if the workspace is gone, or its mounts are exchanged.
    pub fn view(&self) -> Result<Option<MountedView>, SetupFailure> {
        self.identity.source.upgrade().map_or(Ok(None), |source| source.view())
    }

    /// What sandboxes of this key are created with.
    pub fn spec(&self, mounts: MountedWorkspace) -> RunSpec {
        let (argv, env, workdir) = match &self.ahead {
            Some(ProgramAhead { prestart, env, workdir }) => {
                (prestart.argv.clone(), env.clone(), workdir.clone())
            }
            None => (Vec::new(), Vec::new(), "/".into()),
        };
        RunSpec {
            argv,
            env,
            workdir,
            limits: self.limits.clone(),
            excess_output: self.excess_output,
            workspace: WorkspaceFill::Mounted(mounts),
            ..RunSpec::default()
        }
    }
}
