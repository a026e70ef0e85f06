//! Enables controllers for the part of the unified hierarchy below this process's own group, and
//! disables them again.
//!
//! A group of version 2 may hold processes or enable controllers for children, not both (except for
//! the root of the hierarchy). So if this process lives in its own group, as in a container or a
//! systemd service, it first moves into a leaf below it. The kernel's EBUSY is not enough to decide
//! this: the kernel enables pids and cpu in a group with processes too, but the children then
//! become domains that accept no process.
//!
//! No other process is ever moved. `cgroup.subtree_control` is written only in our own group and in
//! groups created here.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;

use super::control::CgroupControl;
use super::directory::{CgroupDirectory, CgroupError, RETRY_INTERVAL};
use super::limit_files::V2_WEIGHT_FILE;
use cofferdam_core::values::deadline::Deadline;

const OFFERED: &str = "cgroup.controllers";
const HANDED_DOWN: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";

/// The highest weight that the kernel accepts.
const WEIGHT_MAX: &str = "10000";

/// A thread of this process that is ending cannot be moved, and keeps its group busy until it is
/// gone. On a busy host that takes longer than joining it.
const LAST_THREAD_WAIT_MAX: Duration = Duration::from_millis(500);

/// The leaf that this process moves into. No sandbox may have this name.
pub(super) const SUPERVISOR: &str = "supervisor";

/// What the unified hierarchy provides.
#[derive(Debug, Default)]
pub(super) struct Delegation {
    /// The controllers of sandboxes below our top directory.
    granted: Vec<&'static str>,
    /// Why the others are not available.
    refused: Vec<(&'static str, String)>,
    /// Set if this process left its own group: the controllers enabled there.
    moved: Option<Vec<&'static str>>,
}

impl Delegation {
    /// Enables memory, pids and cpu for the children of `top`, as far as `own` can hand them down.
    /// `own` is the group of this process and the parent of `top`.
    pub(super) fn obtain(own: &CgroupDirectory, top: &CgroupDirectory) -> Self {
        let mut delegation = Self::default();
        let offered = delegation.offered(own);
        if offered.is_empty() {
            return delegation;
        }
        if !is_root(own) {
            if let Err(reason) = move_out(own, top) {
                delegation.refuse_all(&reason);
                return delegation;
            }
            delegation.moved = Some(Vec::new());
        }
        let switched = Switched::on(own, &offered, Deadline::after(LAST_THREAD_WAIT_MAX));
        if let Some(by_us) = &mut delegation.moved {
            by_us.clone_from(&switched.by_us);
        }
        delegation.note(&switched);
        let below = Switched::on(top, &switched.now_on, Deadline::after(Duration::ZERO));
        delegation.note(&below);
        delegation.granted = below.now_on;
        delegation.outweigh_sandboxes(top);
        if delegation.granted.is_empty()
            && let Err(error) = delegation.give_back(own, top)
        {
            log::warn!("cgroup: cannot go back to our own group: {error}");
        }
        delegation
    }

    /// Gives this process the highest weight if it lives next to the sandboxes: they all wait for
    /// it.
    fn outweigh_sandboxes(&self, top: &CgroupDirectory) {
        if self.moved.is_none() || !self.grants("cpu") {
            return;
        }
        let file = format!("{SUPERVISOR}/{V2_WEIGHT_FILE}");
        if let Err(error) = top.write(&file, WEIGHT_MAX) {
            log::warn!("cgroup cpu: {error}");
        }
    }

    /// Whether sandboxes below our top directory have the controller.
    pub(super) fn grants(&self, controller: &str) -> bool {
        self.granted.contains(&controller)
    }

    /// Why they do not have it.
    pub(super) fn refusal(&self, controller: &str) -> Option<&str> {
        let refusal = self.refused.iter().find(|(name, _)| *name == controller)?;
        Some(&refusal.1)
    }

    /// Undoes a move: disables the controllers and returns to the own group. Without a move nothing
    /// is undone: other processes may by now rely on the controllers enabled in the hierarchy's
    /// root.
    pub(super) fn give_back(
        &mut self,
        own: &CgroupDirectory,
        top: &CgroupDirectory,
    ) -> Result<(), CgroupError> {
        let Some(switched_on) = &self.moved else { return Ok(()) };
        switch_off(top, &self.granted)?;
        self.granted.clear();
        switch_off(own, switched_on)?;
        own.write(PROCESSES, "0")?;
        top.remove_child(SUPERVISOR)?;
        self.moved = None;
        Ok(())
    }

    /// The usable controllers among those that our group may hand down.
    fn offered(&mut self, own: &CgroupDirectory) -> Vec<&'static str> {
        let offered = match own.read(OFFERED) {
            Ok(text) => text,
            Err(error) => {
                self.refuse_all(&error.to_string());
                return Vec::new();
            }
        };
        let (usable, missing): (Vec<_>, Vec<_>) =
            wanted().partition(|controller| offered.split_whitespace().any(|o| o == *controller));
        let reason = format!("{}/{OFFERED} does not list it", own.path().display());
        self.refused = missing.into_iter().map(|controller| (controller, reason.clone())).collect();
        usable
    }

    fn note(&mut self, switched: &Switched) {
        for (controller, reason) in &switched.refused {
            if self.refusal(controller).is_none() {
                self.refused.push((controller, reason.clone()));
            }
        }
    }

    fn refuse_all(&mut self, reason: &str) {
        self.refused.extend(wanted().map(|controller| (controller, reason.to_owned())));
    }
}

/// The result of enabling controllers in `cgroup.subtree_control` of a group.
#[derive(Debug, Default)]
struct Switched {
    /// Enabled, as read back.
    now_on: Vec<&'static str>,
    /// Enabled now and not before.
    by_us: Vec<&'static str>,
    refused: Vec<(&'static str, String)>,
}

impl Switched {
    /// Writes each controller alone: the kernel accepts all of a write or nothing, and a refusal of
    /// one controller (cpu, with real-time processes) must not affect the others. A busy group is
    /// retried until the deadline.
    fn on(group: &CgroupDirectory, controllers: &[&'static str], deadline: Deadline) -> Self {
        let mut switched = Self::default();
        let is_on = |controller: &str| -> Result<bool, CgroupError> {
            Ok(group.read(HANDED_DOWN)?.split_whitespace().any(|on| on == controller))
        };
        for controller in controllers {
            let result = match is_on(controller) {
                Ok(false) => switch_on(group, controller, deadline).and_then(|()| {
                    switched.by_us.push(controller);
                    is_on(controller)
                }),
                known => known,
            };
            match result {
                Ok(true) => switched.now_on.push(controller),
                Ok(false) => {
                    let file = group.path().join(HANDED_DOWN);
                    let reason = format!("{}: taken, but not on afterwards", file.display());
                    switched.refused.push((controller, reason));
                }
                Err(error) => switched.refused.push((controller, error.to_string())),
            }
        }
        switched
    }
}

/// Whether this is the root of the whole hierarchy, which sends no events. The root of a cgroup
/// namespace does.
fn is_root(group: &CgroupDirectory) -> bool {
    !group.has("cgroup.events")
}

/// Moves this process with all its threads from `own` to a leaf below `top`. On an error it stays
/// where it was.
fn move_out(own: &CgroupDirectory, top: &CgroupDirectory) -> Result<(), String> {
    wait_for_own_children(own)?;
    let leaf = top.make_child(SUPERVISOR).map_err(|error| error.to_string())?;
    leaf.write(PROCESSES, "0").map_err(|error| {
        // A remaining leaf is harmless; the removal of the top directory reports it.
        let _ = top.remove_child(SUPERVISOR);
        error.to_string()
    })
}

/// Waits until `own` holds this process alone. Waits for children of this process that are about to
/// end, such as those of another sandbox. Other processes stay there, and are an error.
fn wait_for_own_children(own: &CgroupDirectory) -> Result<(), String> {
    let deadline = Deadline::after(LAST_THREAD_WAIT_MAX);
    let ourselves = std::process::id().to_string();
    loop {
        let living_here = own.read(PROCESSES).map_err(|error| error.to_string())?;
        let mut others = living_here.lines().filter(|process| *process != ourselves).peekable();
        if others.peek().is_none() {
            return Ok(());
        }
        if deadline.passed() || !others.all(is_child_or_gone) {
            let own = own.path().display();
            return Err(format!("{own}/{PROCESSES}: other processes live in our own group"));
        }
        sleep(RETRY_INTERVAL);
    }
}

/// Whether a process is a child of this one, or gone. A process outside of this PID namespace,
/// which the kernel lists as 0, is not.
fn is_child_or_gone(process: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
        return process != "0";
    };
    // After the name, which may contain any character: the state, then the parent.
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
    parent == Some(std::process::id().to_string().as_str())
}

fn switch_on(
    group: &CgroupDirectory,
    controller: &str,
    deadline: Deadline,
) -> Result<(), CgroupError> {
    loop {
        match group.write(HANDED_DOWN, &format!("+{controller}")) {
            Err(error) if error.errno == Errno::EBUSY && !deadline.passed() => {
                sleep(RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}

fn switch_off(group: &CgroupDirectory, controllers: &[&str]) -> Result<(), CgroupError> {
    controllers.iter().try_for_each(|c| group.write(HANDED_DOWN, &format!("-{c}")))
}

fn wanted() -> impl Iterator<Item = &'static str> {
    CgroupControl::ALL.into_iter().filter_map(CgroupControl::v2_controller)
}
