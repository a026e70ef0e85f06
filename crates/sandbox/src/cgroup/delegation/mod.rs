//! Enables controllers for the part of the unified hierarchy below this process's own group, and
//! disables them again.
//!
//! A group may not hold processes too, so this process first moves into a leaf (see [`Leaf`]). The
//! kernel's EBUSY is not enough to decide this: the kernel enables pids and cpu in a group with
//! processes too, but the children then become domains that accept no process.
//!
//! `cgroup.subtree_control` is written only in our own group and in groups created here.

mod leaf;

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;

pub(super) use self::leaf::Leaf;
use self::leaf::{HANDED_DOWN, LAST_THREAD_WAIT_MAX};
use super::control::CgroupControl;
use super::directory::{CgroupDirectory, CgroupError, RETRY_INTERVAL};
use super::limit_files::{V2_WEIGHT_FILE, WEIGHT_MAX};
use cofferdam_core::values::deadline::Deadline;

const OFFERED: &str = "cgroup.controllers";

/// What the unified hierarchy provides.
#[derive(Debug, Default)]
pub(super) struct Delegation {
    /// The controllers of sandboxes below our top directory.
    granted: Vec<&'static str>,
    /// Why the others are not available.
    refused: Vec<(&'static str, String)>,
    /// Set if this process left its own group.
    leaf: Option<Arc<Leaf>>,
}

impl Delegation {
    /// Enables memory, pids and cpu for the children of `top`, as far as `own` can hand them down.
    /// `own` is the group of this process and the parent of `top`.
    pub(super) fn obtain(own: &Arc<CgroupDirectory>, top: &CgroupDirectory) -> Self {
        let mut delegation = Self::default();
        let offered = delegation.offered(own);
        if offered.is_empty() {
            return delegation;
        }
        if !is_root(own) {
            match Leaf::below(own, top.name()) {
                Ok(leaf) => delegation.leaf = Some(leaf),
                Err(reason) => {
                    delegation.refuse_all(&reason);
                    return delegation;
                }
            }
        }
        let switched = Switched::on(own, &offered, Deadline::after(LAST_THREAD_WAIT_MAX));
        if let Some(leaf) = &delegation.leaf {
            leaf.note_switched_on(&switched.by_us);
        }
        delegation.note(&switched);
        let below = Switched::on(top, &switched.now_on, Deadline::after(Duration::ZERO));
        delegation.note(&below);
        delegation.granted = below.now_on;
        delegation.set_weights(top);
        if delegation.granted.is_empty()
            && let Err(error) = delegation.give_back()
        {
            log::warn!("cgroup: cannot go back to our own group: {error}");
        }
        delegation
    }

    /// If this process lives beside the top directories, it and each of them share the CPU equally:
    /// the sandboxes wait for the process, and it waits for them.
    fn set_weights(&self, top: &CgroupDirectory) {
        let Some(leaf) = self.leaf.as_ref().filter(|_| self.grants("cpu")) else { return };
        for result in [leaf.outweigh(), top.write(V2_WEIGHT_FILE, WEIGHT_MAX)] {
            if let Err(error) = result {
                log::warn!("cgroup cpu: {error}");
            }
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

    /// The leaf that this process moved into.
    pub(super) fn leaf(&self) -> Option<&Path> {
        self.leaf.as_ref().map(|leaf| leaf.path())
    }

    /// Undoes a move, once no top directory of this process needs it. Without a move nothing is
    /// undone: other processes may by now rely on the controllers enabled in the hierarchy's root.
    pub(super) fn give_back(&mut self) -> Result<(), CgroupError> {
        Leaf::leave(&mut self.leaf)
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

fn wanted() -> impl Iterator<Item = &'static str> {
    CgroupControl::ALL.into_iter().filter_map(CgroupControl::v2_controller)
}
