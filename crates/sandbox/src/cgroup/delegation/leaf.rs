//! The group that this process lives in while sandboxes are next to it.
//!
//! A group of version 2 may hold processes or enable controllers for children, not both (except for
//! the root of the hierarchy). So if this process lives in its own group, as in a container or a
//! systemd service, it first moves into a leaf below it. Every tree of the process shares that leaf:
//! the first one moves the process there, and the last one moves it back. They may be opened and
//! closed in any order.
//!
//! No other process is ever moved.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;

use crate::cgroup::directory::{CgroupDirectory, CgroupError, RETRY_INTERVAL};
use crate::cgroup::limit_files::{V2_WEIGHT_FILE, WEIGHT_MAX};
use cofferdam_core::values::deadline::Deadline;

pub const HANDED_DOWN: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";

/// What the name of a leaf ends with.
const SUFFIX: &str = "-supervisor";

/// A thread of this process that is ending cannot be moved, and keeps its group busy until it is
/// gone. On a busy host that takes longer than joining it.
pub const LAST_THREAD_WAIT_MAX: Duration = Duration::from_millis(500);

/// The leaves of this process. More than one only if the process was moved between two of them.
static LEAVES: Mutex<Vec<Weak<Leaf>>> = Mutex::new(Vec::new());

/// A leaf, with this process in it.
#[derive(Debug)]
pub struct Leaf {
    /// The group that this process was started in.
    origin: Arc<CgroupDirectory>,
    path: PathBuf,
    /// The controllers that were enabled for the children of `origin`, once it was empty.
    switched_on: Mutex<Vec<&'static str>>,
}

impl Leaf {
    /// The group that this process was started in, if `current`, where it is now, is a leaf.
    pub fn origin_of(current: &Path) -> Option<PathBuf> {
        living(&leaves(), |leaf| leaf.path == current).map(|leaf| leaf.origin.path().to_owned())
    }

    /// Moves this process with all its threads from `origin` to a leaf beside the top directory
    /// `top_name`, or returns the leaf that it is in already. On an error it stays where it was.
    pub fn below(origin: &Arc<CgroupDirectory>, top_name: &str) -> Result<Arc<Self>, String> {
        let mut leaves = leaves();
        let is_it = |leaf: &Self| leaf.origin.path() == origin.path() && leaf.holds_this_process();
        if let Some(leaf) = living(&leaves, is_it) {
            return Ok(leaf);
        }
        wait_for_own_children(origin)?;
        let name = format!("{top_name}{SUFFIX}");
        let made = origin.make_child(&name).map_err(|error| error.to_string())?;
        made.write(PROCESSES, "0").map_err(|error| {
            // The error that matters is the one returned.
            let _ = origin.remove_child(&name);
            error.to_string()
        })?;
        let leaf = Arc::new(Self {
            origin: Arc::clone(origin),
            path: made.path().to_owned(),
            switched_on: Mutex::default(),
        });
        leaves.retain(|leaf| leaf.strong_count() > 0);
        leaves.push(Arc::downgrade(&leaf));
        Ok(leaf)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes controllers to disable before this process moves back.
    pub fn note_switched_on(&self, controllers: &[&'static str]) {
        lock(&self.switched_on).extend(controllers);
    }

    /// Gives this process the highest weight among the children of its origin: all sandboxes wait
    /// for it.
    pub fn outweigh(&self) -> Result<(), CgroupError> {
        self.origin.write(&format!("{}/{V2_WEIGHT_FILE}", self.name()), WEIGHT_MAX)
    }

    /// Gives up `held`. The last one disables the controllers and moves this process back. After an
    /// error it can be tried again.
    pub fn leave(held: &mut Option<Arc<Self>>) -> Result<(), CgroupError> {
        // The lock keeps other trees out of the leaf until this one has left.
        let _leaves = leaves();
        if let Some(leaf) = held.as_ref().filter(|leaf| Arc::strong_count(leaf) == 1) {
            switch_off(&leaf.origin, &lock(&leaf.switched_on))?;
            leaf.origin.write(PROCESSES, "0")?;
            leaf.origin.remove_child(leaf.name())?;
        }
        *held = None;
        Ok(())
    }

    /// Another process may have moved this one elsewhere.
    fn holds_this_process(&self) -> bool {
        let ourselves = std::process::id().to_string();
        let processes = self.origin.read(&format!("{}/{PROCESSES}", self.name()));
        processes.is_ok_and(|processes| processes.lines().any(|process| process == ourselves))
    }

    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

fn leaves() -> MutexGuard<'static, Vec<Weak<Leaf>>> {
    lock(&LEAVES)
}

/// No code that holds one of these locks leaves a value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn living(leaves: &[Weak<Leaf>], is_it: impl Fn(&Leaf) -> bool) -> Option<Arc<Leaf>> {
    leaves.iter().filter_map(Weak::upgrade).find(|leaf| is_it(leaf))
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

fn switch_off(group: &CgroupDirectory, controllers: &[&str]) -> Result<(), CgroupError> {
    controllers.iter().try_for_each(|c| group.write(HANDED_DOWN, &format!("-{c}")))
}
