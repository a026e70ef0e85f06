//! Gets controllers for our own part of the unified hierarchy, and gives them back.
//!
//! A group of version 2 may hold processes or hand controllers to children,
//! not both (its root may). So where our own group holds us, as in a container
//! or a systemd service, we move into a leaf below it first. Nobody else is
//! ever moved, and no group's `cgroup.subtree_control` is written but our own
//! and those we made.

use nix::errno::Errno;

use super::control::Control;
use super::directory::{CgroupError, Directory};

const OFFERED: &str = "cgroup.controllers";
const HANDED_DOWN: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";

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
    pub(super) fn obtain(own: &Directory, top: &Directory) -> Self {
        let mut delegation = Self::default();
        let offered = delegation.offered(own);
        if offered.is_empty() {
            return delegation;
        }
        let mut switched = Switched::on(own, &offered);
        if switched.met_processes {
            switched = delegation.move_out_and_switch(own, top, &offered, switched);
        }
        delegation.note(&switched);
        let below = Switched::on(top, &switched.now_on);
        delegation.note(&below);
        delegation.granted = below.now_on;
        if delegation.granted.is_empty()
            && let Err(error) = delegation.give_back(own, top)
        {
            log::warn!("cgroup: cannot go back to our own group: {error}");
        }
        delegation
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
        own: &Directory,
        top: &Directory,
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
    fn offered(&mut self, own: &Directory) -> Vec<&'static str> {
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

    fn move_out_and_switch(
        &mut self,
        own: &Directory,
        top: &Directory,
        offered: &[&'static str],
        before: Switched,
    ) -> Switched {
        let moved = top.make_child(SUPERVISOR).and_then(|leaf| leaf.write(PROCESSES, "0"));
        if let Err(error) = moved {
            // An empty leaf is in nobody's way; the top's removal reports it.
            let _ = top.remove_child(SUPERVISOR);
            self.refuse_all(&format!("cannot leave our own group: {error}"));
            return before;
        }
        let mut after = Switched::on(own, offered);
        after.by_us.extend(before.by_us);
        self.moved = Some(after.by_us.clone());
        after
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
    /// Whether processes that live in the group were in the way.
    met_processes: bool,
}

impl Switched {
    /// One write each: the kernel takes all of a write or nothing, and one
    /// controller's refusal (cpu, with real-time processes) is not the others'.
    fn on(group: &Directory, controllers: &[&'static str]) -> Self {
        let mut switched = Self::default();
        let is_on = |controller: &str| -> Result<bool, CgroupError> {
            Ok(group.read(HANDED_DOWN)?.split_whitespace().any(|on| on == controller))
        };
        for controller in controllers {
            let result = match is_on(controller) {
                Ok(false) => group.write(HANDED_DOWN, &format!("+{controller}")).and_then(|()| {
                    switched.by_us.push(controller);
                    is_on(controller)
                }),
                known => known,
            };
            match result {
                Ok(true) => switched.now_on.push(controller),
                Ok(false) => switched.refuse(controller, group, "taken, but not on afterwards"),
                Err(error) if error.errno == Errno::EBUSY => {
                    switched.met_processes = true;
                    switched.refuse(controller, group, "EBUSY, processes live in that group");
                }
                Err(error) => switched.refused.push((controller, error.to_string())),
            }
        }
        switched
    }

    fn refuse(&mut self, controller: &'static str, group: &Directory, why: &str) {
        let file = group.path().join(HANDED_DOWN);
        self.refused.push((controller, format!("{}: {why}", file.display())));
    }
}

fn switch_off(group: &Directory, controllers: &[&str]) -> Result<(), CgroupError> {
    controllers.iter().try_for_each(|c| group.write(HANDED_DOWN, &format!("-{c}")))
}

fn wanted() -> impl Iterator<Item = &'static str> {
    Control::ALL.into_iter().filter_map(Control::v2_controller)
}
