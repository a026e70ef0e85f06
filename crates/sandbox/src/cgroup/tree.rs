//! The part of the host's cgroup trees that this process uses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;

use super::control::{CgroupControl, CgroupSupport, CgroupVersion, ControlSupport};
use super::directory::{CgroupError, CgroupFs, KernelCgroupFs};
use super::hierarchy::Hierarchy;
use super::layout::{CgroupLayout, read_text};
use super::limit_files::{V1_SOCKETS_FILE, V1_SWAP_FILE, V2_SWAP_FILE};
use super::reclaim;
use super::sandbox_group::SandboxGroup;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{Limits, SetupFailure};

/// The prefix of the name of every top directory.
pub(super) const NAME_PREFIX: &str = "cofferdam-";
/// The prefix of the name of a sandbox's directory.
pub const SANDBOX_PREFIX: &str = "box-";

const NAME_BYTES_MAX: usize = 64;

/// The top directories of this process, one in each hierarchy that provides a control. Created
/// once; it outlives the sandboxes below it.
#[derive(Debug)]
pub struct CgroupTree {
    /// The hierarchy that kills comes first: it empties the others.
    hierarchies: Vec<Hierarchy>,
    support: CgroupSupport,
}

impl CgroupTree {
    /// Creates the top directories, `cofferdam-<instance>`, below the groups this process is in. If
    /// version 2 enables its controllers only in an empty group, this process moves into a leaf of
    /// its own.
    ///
    /// A control that the host refuses is not an error but a reason in [`CgroupTree::support`]. It
    /// is an error if the instance name is not 1 to 64 letters, digits, `-` and `_`, or is in use.
    pub fn open(instance: &str) -> Result<Self, SetupFailure> {
        let read = |path: &str| {
            read_text(path).map_err(|e| SetupFailure::from_io(format!("read {path}"), &e))
        };
        let layout = match weakened::lacks(Wall::Cgroup) {
            false => {
                CgroupLayout::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
            }
            true => CgroupLayout::parse("", ""),
        };
        // A kernel without swap has no such file. The first line is a heading.
        let swaps = read_text("/proc/swaps").unwrap_or_default();
        let kernel: Arc<dyn CgroupFs> = Arc::new(KernelCgroupFs);
        Self::open_on(&layout, swaps.lines().count() > 1, &kernel, instance)
    }

    pub(super) fn open_on(
        layout: &CgroupLayout,
        swap_is_on: bool,
        calls: &Arc<dyn CgroupFs>,
        instance: &str,
    ) -> Result<Self, SetupFailure> {
        check_name("cgroup instance", instance)?;
        reclaim::note_groups();
        let name = format!("{NAME_PREFIX}{instance}");
        let make_v2 = |own: &Path| Hierarchy::v2(Arc::clone(calls), own, &name);
        let unified = attempt(layout.v2.as_deref(), make_v2)?;
        let mut v1 = Vec::new();
        let mut support = CgroupSupport::default();
        for control in CgroupControl::ALL {
            let no_v2 = match &unified {
                Ok(unified) if unified.gives(control) => None,
                Ok(unified) => Some(unified.refusal(control)),
                Err(reason) => Some(reason.as_str()),
            };
            *support.of_mut(control) = match no_v2 {
                None => ControlSupport::given(CgroupVersion::V2),
                Some(no_v2) => match take_from_v1(&mut v1, layout, calls, &name, control)? {
                    Ok(()) => ControlSupport::given(CgroupVersion::V1),
                    Err(no_v1) => {
                        ControlSupport::missing(format!("cgroup2: {no_v2}; cgroup1: {no_v1}"))
                    }
                },
            };
        }
        let mut hierarchies: Vec<Hierarchy> = unified.into_iter().chain(v1).collect();
        hierarchies.sort_by_key(|hierarchy| !hierarchy.gives(CgroupControl::Kill));
        let mut tree = Self { hierarchies, support };
        tree.note_unbounded_memory(swap_is_on);
        Ok(tree)
    }

    /// Notes it if memory is limited but swap or socket memory is not.
    fn note_unbounded_memory(&mut self, swap_is_on: bool) {
        let Some(memory) = self.hierarchies.iter().find(|h| h.gives(CgroupControl::Memory)) else {
            return;
        };
        let (swap_file, sockets_file) = match memory.version() {
            CgroupVersion::V1 => (V1_SWAP_FILE, Some(V1_SOCKETS_FILE)),
            // Version 2 accounts socket memory as memory.
            CgroupVersion::V2 => (V2_SWAP_FILE, None),
        };
        let mut reasons = Vec::new();
        if swap_is_on && !memory.top().has(swap_file) {
            reasons.push(format!("swap is on and not bounded: there is no {swap_file}"));
        }
        if let Some(file) = sockets_file.filter(|file| !memory.top().has(file)) {
            reasons.push(format!("sockets are not bounded: there is no {file}"));
        }
        if !reasons.is_empty() {
            self.support.memory.reason = Some(reasons.join("; "));
        }
    }

    /// The controls that sandboxes get, which version provides each, and why others are missing.
    pub fn support(&self) -> &CgroupSupport {
        &self.support
    }

    /// Creates the groups of one sandbox and sets its limits, as far as [`CgroupTree::support`] has
    /// them. `name` is 1 to 64 letters, digits, `-` and `_`, and not in use.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<SandboxGroup, SetupFailure> {
        check_name("cgroup sandbox", name)?;
        SandboxGroup::create(&self.hierarchies, name, Some(limits))
    }

    /// As [`CgroupTree::create`], for a tree that has no other sandbox, ever.
    pub fn create_only(&self, name: &str, limits: &Limits) -> Result<SandboxGroup, SetupFailure> {
        check_name("cgroup sandbox", name)?;
        SandboxGroup::create_only(&self.hierarchies, name, limits)
    }

    /// As [`CgroupTree::create`], for a sandbox whose limits are those of groups in it.
    pub fn create_unlimited(&self, name: &str) -> Result<SandboxGroup, SetupFailure> {
        check_name("cgroup sandbox", name)?;
        SandboxGroup::create(&self.hierarchies, name, None)
    }

    /// The top directories, and the leaf of this process, in the order in which to sweep them.
    /// Recorded, they let a later process [`sweep`](fn@super::sweep) what this one left.
    pub fn directories(&self) -> Vec<PathBuf> {
        let tops = self.hierarchies.iter().map(|hierarchy| hierarchy.top().path());
        tops.chain(self.hierarchies.iter().filter_map(Hierarchy::leaf))
            .map(Path::to_owned)
            .collect()
    }

    /// Removes the top directories, after the last sandbox. If this process moved, it moves back.
    /// All are tried; returns the first error.
    pub fn close(&mut self, deadline: Deadline) -> Result<(), CgroupError> {
        let results: Vec<_> = self.hierarchies.iter_mut().map(|h| h.close(deadline)).collect();
        results.into_iter().collect()
    }
}

/// Makes sandboxes take `control` from version 1. The inner error says why that is not possible.
fn take_from_v1(
    taken: &mut Vec<Hierarchy>,
    layout: &CgroupLayout,
    calls: &Arc<dyn CgroupFs>,
    name: &str,
    control: CgroupControl,
) -> Result<Result<(), String>, SetupFailure> {
    let place = layout.v1_place(control.v1_controller());
    // Controllers can share a hierarchy, as cpu and cpuacct often do.
    if let Some(shared) = taken.iter_mut().find(|h| place.is_ok_and(|own| h.is_at(own))) {
        shared.take(control);
        return Ok(Ok(()));
    }
    let made = attempt(place.as_ref(), |own| Hierarchy::v1(Arc::clone(calls), own, name))?;
    Ok(made.map(|mut hierarchy| {
        hierarchy.take(control);
        taken.push(hierarchy);
    }))
}

/// Returns a hierarchy, or why the host refuses it. A name in use is an error of the caller.
fn attempt<P: AsRef<Path>>(
    place: Result<P, &&'static str>,
    make: impl FnOnce(&Path) -> Result<Hierarchy, CgroupError>,
) -> Result<Result<Hierarchy, String>, SetupFailure> {
    let own = match place {
        Ok(own) => own,
        Err(reason) => return Ok(Err((*reason).to_owned())),
    };
    match make(own.as_ref()) {
        Err(error) if error.errno == Errno::EEXIST => {
            Err(SetupFailure::from_errno("cgroup instance", libc::EEXIST))
        }
        made => Ok(made.map_err(|error| error.to_string())),
    }
}

/// No dot, so that no name can be that of a control file.
fn check_name(step: &str, name: &str) -> Result<(), SetupFailure> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(SetupFailure::from_words(step, "want 1 to 64 letters, digits, - and _"));
    }
    // "tasks" is the one control file without a dot.
    if name == "tasks" {
        return Err(SetupFailure::from_words(step, "the name is taken"));
    }
    Ok(())
}
