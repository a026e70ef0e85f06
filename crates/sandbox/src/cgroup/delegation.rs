//! Gets controllers for our own part of the unified hierarchy, and gives them back.
//!
//! A group of version 2 may hold processes or hand controllers to children,
//! not both (its root may). So where our own group holds us, as in a container
//! or a systemd service, we first move into a leaf below it. This is not left
//! to the kernel's EBUSY: pids and cpu it hands down from a group with
//! processes too, but then makes of the children domains that take nobody.
//!
//! Nobody else is ever moved, and no group's `cgroup.subtree_control` is
//! written but our own and those we made.

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

/// The most the kernel takes for a weight.
const WEIGHT_MAX: &str = "10000";

/// A thread of ours that is ending cannot be moved any more, and its group is
/// busy until it is gone: longer, on a busy host, than joining it takes.
const LAST_THREAD_WAIT_MAX: Duration = Duration::from_millis(500);

/// The leaf that we move into; no box may have this name.
pub(super) const SUPERVISOR: &str = "supervisor";

/// What the unified hierarchy gave us.
#[derive(Debug, Default)]
pub(super) struct Delegation {
    /// The controllers that boxes below our top directory have.
    granted: Vec<&'static str>,
    /// Why not the others, in words.
    refused: Vec<(&'static str, String)>,
    /// Set where we left our own group: the controllers we switched on in it.
    moved: Option<Vec<&'static str>>,
}

impl Delegation {
    /// Switches on, for the children of `top`, what of memory, pids and cpu
    /// `own`, the group we are in and `top`'s parent, can hand down.
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
        delegation.outweigh_boxes(top);
        if delegation.granted.is_empty()
            && let Err(error) = delegation.give_back(own, top)
        {
            log::warn!("cgroup: cannot go back to our own group: {error}");
        }
        delegation
    }

    /// Where we live beside the boxes, all of them together must not keep us
    /// from a CPU: they all wait for us.
    fn outweigh_boxes(&self, top: &CgroupDirectory) {
        if self.moved.is_none() || !self.grants("cpu") {
            return;
        }
        let file = format!("{SUPERVISOR}/{V2_WEIGHT_FILE}");
        if let Err(error) = top.write(&file, WEIGHT_MAX) {
            log::warn!("cgroup cpu: {error}");
        }
    }

    /// Whether boxes below our top directory have the controller.
    pub(super) fn grants(&self, controller: &str) -> bool {
        self.granted.contains(&controller)
    }

    /// Why they do not.
    pub(super) fn refusal(&self, controller: &str) -> Option<&str> {
        let refusal = self.refused.iter().find(|(name, _)| *name == controller)?;
        Some(&refusal.1)
    }

    /// Undoes a move: hands the controllers back, returns to our own group.
    /// Without a move nothing is undone: what the hierarchy's root hands down
    /// others may have come to rely on.
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

    /// The controllers we can use among those our group may hand down.
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

/// How switching controllers on in a group's `cgroup.subtree_control` went.
#[derive(Debug, Default)]
struct Switched {
    /// Those that are on, read back.
    now_on: Vec<&'static str>,
    /// Those of them that were not before.
    by_us: Vec<&'static str>,
    refused: Vec<(&'static str, String)>,
}

impl Switched {
    /// One write each: the kernel takes all of a write or nothing, and one
    /// controller's refusal (cpu, with real-time processes) is not the others'.
    /// A busy group is tried until the deadline.
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

/// Whether this is the root of the whole hierarchy, which announces no events;
/// what a cgroup namespace shows as `/` is not.
fn is_root(group: &CgroupDirectory) -> bool {
    !group.has("cgroup.events")
}

/// Moves this process, all its threads, from `own` to a leaf below `top`. An
/// error says in words why not; then it stays where it was.
fn move_out(own: &CgroupDirectory, top: &CgroupDirectory) -> Result<(), String> {
    wait_for_own_children(own)?;
    let leaf = top.make_child(SUPERVISOR).map_err(|error| error.to_string())?;
    leaf.write(PROCESSES, "0").map_err(|error| {
        // A leaf that stays is in nobody's way; the top's removal reports it.
        let _ = top.remove_child(SUPERVISOR);
        error.to_string()
    })
}

/// Waits until `own` holds this process alone. Children of this process that are about to end, as
/// another sandbox of it may have, are waited for; others are at home there.
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

/// Whether a process is a child of this one. One that cannot be seen from here, which the kernel
/// lists as 0, is not.
fn is_child_or_gone(process: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
        return process != "0";
    };
    // Behind the name, which may hold anything: the state, then the parent.
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
