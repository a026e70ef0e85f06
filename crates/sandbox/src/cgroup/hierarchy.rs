//! One cgroup hierarchy: the group of this process in it, and the top directory created there.

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;

use nix::errno::Errno;

use super::control::{CgroupControl, CgroupVersion};
use super::delegation::{Delegation, Leaf};
use super::directory::{CgroupDirectory, CgroupError, CgroupFs, RETRY_INTERVAL};
use cofferdam_core::values::deadline::Deadline;

/// A hierarchy that sandboxes use. Drop removes its top directory.
#[derive(Debug)]
pub(super) struct Hierarchy {
    /// The group that this process was started in.
    own: Arc<CgroupDirectory>,
    /// Our directory below it; sandboxes hold it too.
    top: Arc<CgroupDirectory>,
    /// The controls that sandboxes get from here.
    controls: Vec<CgroupControl>,
    delegation: Delegation,
    closed: bool,
}

impl Hierarchy {
    /// Creates the top directory in a version 1 hierarchy.
    pub(super) fn v1(
        calls: Arc<dyn CgroupFs>,
        own: &Path,
        name: &str,
    ) -> Result<Self, CgroupError> {
        Self::make(calls, own, name)
    }

    /// Creates the top directory in the unified hierarchy and enables every control it can provide.
    /// `EOPNOTSUPP` below a threaded group, where no new group can hold a process.
    pub(super) fn v2(
        calls: Arc<dyn CgroupFs>,
        own: &Path,
        name: &str,
    ) -> Result<Self, CgroupError> {
        let origin = Leaf::origin_of(own);
        let mut made = Self::make(calls, origin.as_deref().unwrap_or(own), name)?;
        made.delegation = Delegation::obtain(&made.own, &made.top);
        if made.top.read("cgroup.type").is_ok_and(|kind| kind.trim_end() == "domain invalid") {
            let path = made.top.path().join("cgroup.type");
            return Err(CgroupError { path, errno: Errno::EOPNOTSUPP });
        }
        let gives = |control: &CgroupControl| match control {
            CgroupControl::CpuTime => made.top.has("cpu.stat"),
            CgroupControl::Kill => made.top.has("cgroup.kill") || made.top.has("cgroup.freeze"),
            _ => control.v2_controller().is_some_and(|c| made.delegation.grants(c)),
        };
        made.controls = CgroupControl::ALL.into_iter().filter(gives).collect();
        Ok(made)
    }

    fn make(calls: Arc<dyn CgroupFs>, own: &Path, name: &str) -> Result<Self, CgroupError> {
        let own = Arc::new(CgroupDirectory::open(calls, own)?);
        let top = Arc::new(own.make_child(name)?);
        let delegation = Delegation::default();
        Ok(Self { own, top, controls: Vec::new(), delegation, closed: false })
    }

    /// Makes sandboxes take `control` from here too.
    pub(super) fn take(&mut self, control: CgroupControl) {
        self.controls.push(control);
    }

    pub(super) fn gives(&self, control: CgroupControl) -> bool {
        self.controls.contains(&control)
    }

    /// Why the unified hierarchy does not provide the control.
    pub(super) fn refusal(&self, control: CgroupControl) -> &str {
        let refusal = control.v2_controller().and_then(|c| self.delegation.refusal(c));
        refusal.unwrap_or("the kernel is too old for it")
    }

    pub(super) fn controls(&self) -> &[CgroupControl] {
        &self.controls
    }

    pub(super) fn top(&self) -> &Arc<CgroupDirectory> {
        &self.top
    }

    /// The top directory as the group of a single sandbox, with its parent; `None` if it hands down
    /// controllers of version 2, and so can hold no process.
    pub(super) fn top_as_group(&self) -> Option<(&Arc<CgroupDirectory>, &Arc<CgroupDirectory>)> {
        let grants = CgroupControl::ALL.into_iter().filter_map(CgroupControl::v2_controller);
        let is_plain = !grants.into_iter().any(|control| self.delegation.grants(control));
        is_plain.then_some((&self.own, &self.top))
    }

    /// The leaf that this process lives in while the hierarchy is open.
    pub(super) fn leaf(&self) -> Option<&Path> {
        self.delegation.leaf()
    }

    pub(super) fn version(&self) -> CgroupVersion {
        self.top.version()
    }

    /// Whether this is the hierarchy in which our own group is `own`.
    pub(super) fn is_at(&self, own: &Path) -> bool {
        self.own.path() == own
    }

    /// Removes what [`Hierarchy::v1`] or [`Hierarchy::v2`] created; `EBUSY` while a sandbox exists.
    pub(super) fn close(&mut self, deadline: Deadline) -> Result<(), CgroupError> {
        loop {
            match self.try_close() {
                Err(error) if error.errno == Errno::EBUSY && !deadline.passed() => {
                    sleep(RETRY_INTERVAL);
                }
                result => return result,
            }
        }
    }

    fn try_close(&mut self) -> Result<(), CgroupError> {
        if self.closed {
            return Ok(());
        }
        if Arc::strong_count(&self.top) > 1 {
            // A sandbox is alive.
            return Err(CgroupError { path: self.top.path().to_owned(), errno: Errno::EBUSY });
        }
        self.own.remove_child(self.top.name())?;
        self.delegation.give_back()?;
        self.closed = true;
        Ok(())
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        // A last attempt; `close` reports errors.
        let _ = self.try_close();
    }
}
