//! Probes what this host can enforce. Every control is tried in a child, never inferred.

use std::path::Path;

use super::remedy::{Remedy, remedy};
use super::state::StateDirectory;
pub use super::trials::Enforcement;
use super::trials::{ProbeResult, Trial, cgroup_controls, core_dumps, process_limits, tried};
use super::workspaces::{EVALUATION_FILES, evaluation_files, features};
use crate::cgroup::CgroupTree;
use crate::host::abandoned::SWEEP_WAIT;
use crate::host::host_kind::{HostInfo, HostKind};
use crate::host::root_source::last_capability;
use crate::launch::unprivileged;
use crate::pool::host_id::HostId;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_seccomp::profile::Profile;

/// The control of a complete sandbox.
const WHOLE_SANDBOX: &str = "whole box";
/// What makes runs begin sooner. It is no control.
const RUNTIMES_AHEAD: &str = "runtimes ahead";

/// One control and the result of its trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedControl {
    /// Its name: `pid namespace`, `seccomp`, `memory`.
    pub name: &'static str,
    /// How well it is enforced.
    pub status: Enforcement,
    /// The reason, or what enforces it.
    pub reason: String,
    /// What to change, if it is not enforced.
    pub fix: String,
}

/// The report of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Every control, in the order in which a sandbox gets them.
    pub controls: Vec<ProbedControl>,
    /// What workspaces can have here, besides the controls of their sandboxes. A host without it is as
    /// good as any for runs and jobs.
    pub workspaces: Vec<ProbedControl>,
    /// What kind of host this is.
    pub host_kind: HostKind,
}

impl ProbedControl {
    /// Adds to `result` what to change on `host`.
    fn new(result: ProbeResult, host: &HostInfo) -> Self {
        let ProbeResult { name, status, reason } = result;
        if status == Enforcement::Enforced {
            return Self { name, status, reason, fix: String::new() };
        }
        let Remedy { reasons, fix } = remedy(name, host);
        let reason = [vec![reason.as_str()], reasons].concat().join("; ");
        Self { name, status, reason, fix }
    }
}

impl ProbeReport {
    /// Whether every control is enforced.
    pub fn is_whole(&self) -> bool {
        self.controls.iter().all(|control| control.status == Enforcement::Enforced)
    }

    /// The report if no trial was possible.
    pub fn untried(failure: &SetupFailure) -> Self {
        let host = HostInfo::read();
        let found = tried("trials", Enforcement::Missing, Err(failure.clone()));
        let controls = vec![ProbedControl::new(found, &host)];
        Self { controls, workspaces: Vec::new(), host_kind: host.kind }
    }

    /// Adds what this host can do for workspaces, whose images would be in `images` or the nearest directory
    /// above it.
    pub fn add_workspaces(&mut self, images: &Path) {
        let host = HostInfo::read();
        let found = trial_id().and_then(|(host_id, state)| {
            let support = in_cgroups(&state, |tree| tree.support().clone())?;
            Ok(features(&host_id, images, &support))
        });
        let untried = |failure| vec![tried("workspaces", Enforcement::Missing, Err(failure))];
        let found = found.unwrap_or_else(untried);
        self.workspaces = found.into_iter().map(|found| ProbedControl::new(found, &host)).collect();
    }

    /// Adds where the files of evaluations would lie, with `base` as WORKSPACE_BASE; or, for a base that a
    /// service refuses, in words why, and what to change.
    pub fn add_evaluation_files(&mut self, base: Result<&Path, (String, &str)>) {
        let row = match base {
            Err((reason, fix)) => {
                let (name, status) = (EVALUATION_FILES, Enforcement::Missing);
                ProbedControl { name, status, reason, fix: fix.to_owned() }
            }
            Ok(base) => {
                let found = trial_id().map(|(host_id, _)| evaluation_files(&host_id, base));
                let untried = |failure| tried(EVALUATION_FILES, Enforcement::Missing, Err(failure));
                ProbedControl::new(found.unwrap_or_else(untried), &HostInfo::read())
            }
        };
        self.workspaces.push(row);
    }

    /// Adds whether a service starts runtimes ahead of their runs: in words how many, or why not.
    pub fn add_runtimes_ahead(&mut self, offered: Result<String, String>) {
        let (status, reason) = match offered {
            Ok(reason) => (Enforcement::Enforced, reason),
            Err(reason) => (Enforcement::Missing, reason),
        };
        let row = ProbedControl { name: RUNTIMES_AHEAD, status, reason, fix: String::new() };
        self.workspaces.push(row);
    }

    /// Adds the result of creating a complete sandbox with all controls.
    pub fn add_whole_sandbox(&mut self, made: Result<(), SetupFailure>) {
        let whole_sandbox = tried(WHOLE_SANDBOX, Enforcement::Missing, made);
        self.controls.push(ProbedControl::new(whole_sandbox, &HostInfo::read()));
    }

    /// Whether a sandbox can be created here. Otherwise no service starts.
    pub fn makes_boxes(&self) -> bool {
        let whole = self.controls.iter().find(|control| control.name == WHOLE_SANDBOX);
        whole.is_some_and(|control| control.status == Enforcement::Enforced)
    }
}

/// A host id that no sandbox has, while the directory is held.
fn trial_id() -> Result<(HostId, StateDirectory), SetupFailure> {
    let failed =
        |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
    let state = StateDirectory::open().map_err(failed("state directory"))?;
    // If the process could not enter a user namespace, the trials run as it is and report what
    // fails.
    let host_id = match unprivileged::is_active().unwrap_or(false) {
        true => HostId::shared(),
        false => HostId::acquire(&state).map_err(failed("host uid"))?,
    };
    Ok((host_id, state))
}

/// Tries every control of a sandbox with `profile`'s filter.
pub fn examine(profile: &Profile) -> Result<ProbeReport, SetupFailure> {
    let host = HostInfo::read();
    let failed =
        |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
    let (host_id, state) = trial_id()?;
    let unprivileged = unprivileged::is_active().unwrap_or(false);
    let last_capability = last_capability().map_err(failed("read cap_last_cap"))?;
    let trial = Trial { host_id, unprivileged, last_capability };
    let mut found = trial.namespaces();
    found.extend(trial.root());
    found.extend(trial.privileges(profile));
    found.push(trial.landlock());
    found.push(process_limits().map_err(failed("read limits"))?);
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern");
    found.push(core_dumps(&pattern.map_err(failed("read core_pattern"))?));
    found.extend(in_cgroups(&state, cgroup_controls)?);
    let controls = found.into_iter().map(|found| ProbedControl::new(found, &host)).collect();
    Ok(ProbeReport { controls, workspaces: Vec::new(), host_kind: host.kind })
}

/// Calls `look` with cgroups like those of a service, which are gone afterwards.
fn in_cgroups<T>(
    state: &StateDirectory,
    look: impl FnOnce(&CgroupTree) -> T,
) -> Result<T, SetupFailure> {
    let failed = |error: std::io::Error| SetupFailure::from_io("state directory", &error);
    let instance = state.register().map_err(failed)?;
    let mut tree = CgroupTree::open(instance.id())?;
    let seen = look(&tree);
    let closed = tree.close(Deadline::after(SWEEP_WAIT));
    closed.map_err(|error| SetupFailure::from_words("cgroup", error.to_string()))?;
    instance.unregister().map_err(failed)?;
    Ok(seen)
}
