//! The walk over a source, reduced to the selected entries.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, CString, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, fstatat};

use super::rules::{SnapshotLimits, SnapshotRules, Verdict};
use crate::copy::link_text::{read_link, stays_inside};
use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::walk::budget::{TreeBudget, TreeLimit, TreeLimits};
use crate::walk::dir_stack::Identity;
use crate::walk::path_stack::PathStack;
use crate::walk::stop_check::StopCheck;
use crate::walk::{FileKind, TreeWalk, WalkEvent, as_path};
use cofferdam_core::job::ExcludedGroup;

/// The longest path, bytes: every pattern is matched against all of it.
const PATH_BYTES_MAX: usize = 16 * 1024;
/// The file that marks a virtual environment of any name.
const VIRTUALENV_MARK: &CStr = c"pyvenv.cfg";

/// One selected entry, in an order in which a copy can be made.
#[derive(Debug)]
pub(super) enum SnapshotStep {
    /// A directory. The following steps are in it until `Leave`.
    Directory { name: CString, stat: FileStat },
    /// The return to the parent directory.
    Leave,
    /// A regular file of [`Selection::directory`].
    File { name: CString },
    /// A link that cannot lead out.
    Link { name: CString, stat: FileStat, text: OsString },
}

/// A directory that the walk is in.
#[derive(Debug)]
struct EnteredDir {
    name: CString,
    stat: FileStat,
    /// Whether all its contents are selected unless excluded.
    inside: bool,
    /// Whether its step was returned.
    told: bool,
    passed_over: bool,
}

/// A selection in progress.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    walk: TreeWalk<'a>,
    rules: &'a SnapshotRules,
    path: PathStack,
    levels: Vec<EnteredDir>,
    steps: VecDeque<SnapshotStep>,
    excluded: BTreeMap<ExcludedGroup, u64>,
    budget: TreeBudget,
    files: u64,
    directories: u64,
    files_max: u64,
    stop: StopCheck<'a>,
}

impl<'a> Selection<'a> {
    pub(super) fn over(
        root: BorrowedFd<'a>,
        rules: &'a SnapshotRules,
        limits: &SnapshotLimits,
        stop: StopCheck<'a>,
    ) -> Result<Self, Errno> {
        let common = TreeLimits::default();
        // Entries that are left out are visited too.
        let entries_max = limits.files_max.saturating_mul(2).saturating_add(common.entries_max);
        let limits_of_tree = TreeLimits { entries_max, bytes_max: limits.bytes_max, ..common };
        Ok(Self {
            walk: TreeWalk::to_choose(root, entries_max)?,
            rules,
            path: PathStack::default(),
            levels: Vec::new(),
            steps: VecDeque::new(),
            excluded: BTreeMap::new(),
            budget: TreeBudget::new(limits_of_tree),
            files: 0,
            directories: 0,
            files_max: limits.files_max,
            stop,
        })
    }

    /// Returns the next step, or `None` at the end.
    pub(super) fn advance(&mut self) -> Result<Option<SnapshotStep>, WorkspaceError> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Ok(Some(step));
            }
            self.stop.check().map_err(|fault| fault.at("."))?;
            let Some(event) = self.walk.advance()? else { return Ok(None) };
            self.take(event)?;
        }
    }

    /// The stop check.
    pub(super) fn stop(&self) -> StopCheck<'a> {
        self.stop
    }

    /// The directory of the last file or link.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.walk.directory()
    }

    /// The path of the step's entry or of one below it, for an error.
    pub(super) fn path_of(&self, step: &SnapshotStep) -> PathBuf {
        match step {
            SnapshotStep::File { name } | SnapshotStep::Link { name, .. } => {
                self.path.shown().join(as_path(name))
            }
            SnapshotStep::Directory { .. } | SnapshotStep::Leave => self.path.shown(),
        }
    }

    /// Counts a selected file of `bytes`, or a link.
    pub(super) fn count_file(&mut self, bytes: u64) -> Result<(), WorkspaceFault> {
        self.files += 1;
        if self.files > self.files_max {
            return Err(TreeLimit::Files { max: self.files_max }.into());
        }
        Ok(self.budget.take_bytes(bytes)?)
    }

    /// The number of counted files and bytes.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.files, self.budget.bytes())
    }

    /// Counts an entry as left out.
    pub(super) fn leave_out(&mut self, group: ExcludedGroup) {
        *self.excluded.entry(group).or_default() += 1;
    }

    pub(super) fn into_excluded(self) -> BTreeMap<ExcludedGroup, u64> {
        self.excluded
    }

    fn take(&mut self, event: WalkEvent) -> Result<(), WorkspaceError> {
        match event {
            WalkEvent::Leave { .. } => {
                self.leave();
                Ok(())
            }
            WalkEvent::Enter { name, stat } => {
                self.path.enter(&name);
                self.enter(name, stat).map_err(|fault| fault.at(self.path.shown()))
            }
            WalkEvent::Entry { name, kind } => {
                self.path.enter(&name);
                let taken = self.entry(name, kind);
                self.come_back(taken)
            }
            WalkEvent::Unopened { name, errno } => {
                self.path.enter(&name);
                let taken = self.unopened(errno);
                self.come_back(taken)
            }
        }
    }

    /// Leaves the current entry, and adds its path to an error.
    fn come_back(&mut self, taken: Result<(), WorkspaceFault>) -> Result<(), WorkspaceError> {
        let taken = taken.map_err(|fault| fault.at(self.path.shown()));
        self.path.leave();
        taken
    }

    /// The verdict on the current entry.
    fn judge(&mut self, is_directory: bool) -> Result<Verdict, WorkspaceFault> {
        self.budget.take_entry(self.walk.depth())?;
        if self.path.bytes().len() > PATH_BYTES_MAX {
            return Err(TreeLimit::PathBytes { max: PATH_BYTES_MAX as u64 }.into());
        }
        let inside = self.levels.last().is_some_and(|level| level.inside);
        Ok(self.rules.judge(&self.path, inside, is_directory))
    }

    fn enter(&mut self, name: CString, stat: FileStat) -> Result<(), WorkspaceFault> {
        let mut verdict = self.judge(true)?;
        if self.rules.is_left_out(Identity::of(&stat)) {
            verdict = Verdict::Out(ExcludedGroup::Request);
        }
        if !matches!(verdict, Verdict::Out(_)) && self.is_virtualenv()? {
            verdict = Verdict::Out(ExcludedGroup::Virtualenv);
        }
        let (inside, passed_over) = (verdict == Verdict::In, matches!(verdict, Verdict::Out(_)));
        self.levels.push(EnteredDir { name, stat, inside, told: false, passed_over });
        match verdict {
            Verdict::In => self.tell_directories(),
            Verdict::Through => Ok(()),
            Verdict::Out(group) => {
                self.walk.pass_over();
                self.leave_out(group);
                Ok(())
            }
        }
    }

    fn is_virtualenv(&self) -> Result<bool, WorkspaceFault> {
        match fstatat(self.walk.directory(), VIRTUALENV_MARK, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno).during("stat"),
        }
    }

    fn leave(&mut self) {
        self.path.leave();
        match self.levels.pop() {
            Some(level) if level.told => self.steps.push_back(SnapshotStep::Leave),
            Some(level) if !level.passed_over => self.leave_out(ExcludedGroup::Request),
            _ => {}
        }
    }

    fn entry(&mut self, name: CString, kind: FileKind) -> Result<(), WorkspaceFault> {
        match (self.judge(false)?, kind) {
            (Verdict::Out(group), _) => self.leave_out(group),
            (_, FileKind::Special) => self.leave_out(ExcludedGroup::Special),
            (_, FileKind::Regular) => {
                self.tell_directories()?;
                self.steps.push_back(SnapshotStep::File { name });
            }
            (_, FileKind::Symlink) => {
                let (stat, text) = match read_link(self.walk.directory(), &name) {
                    Ok(link) => link,
                    Err(changed) => return self.changed(changed, "readlink"),
                };
                if stays_inside(text.as_bytes(), self.walk.depth()) {
                    self.tell_directories()?;
                    self.steps.push_back(SnapshotStep::Link { name, stat, text });
                } else {
                    self.leave_out(ExcludedGroup::OutsideLink);
                }
            }
        }
        Ok(())
    }

    fn unopened(&mut self, errno: Errno) -> Result<(), WorkspaceFault> {
        match (self.judge(true)?, errno) {
            (Verdict::Out(group), _) => self.leave_out(group),
            (_, Errno::EXDEV) => self.leave_out(ExcludedGroup::Special),
            (_, errno) => return self.changed(errno, "open"),
        }
        Ok(())
    }

    /// Skips an entry that, by `errno`, has disappeared or changed its type: others may change the
    /// source meanwhile.
    pub(super) fn changed(
        &mut self,
        errno: Errno,
        operation: &'static str,
    ) -> Result<(), WorkspaceFault> {
        match errno {
            Errno::ENOENT => {}
            // It became a link, or is no longer a link or a directory.
            Errno::ELOOP | Errno::EINVAL | Errno::ENOTDIR => self.leave_out(ExcludedGroup::Special),
            errno => return Err(errno).during(operation),
        }
        Ok(())
    }

    /// Queues the steps of the current directories that were not returned yet.
    fn tell_directories(&mut self) -> Result<(), WorkspaceFault> {
        let told = self.levels.iter().rposition(|level| level.told).map_or(0, |last| last + 1);
        for level in self.levels.iter_mut().skip(told) {
            level.told = true;
            self.directories += 1;
            if self.directories > self.files_max {
                return Err(TreeLimit::Directories { max: self.files_max }.into());
            }
            let (name, stat) = (level.name.clone(), level.stat);
            self.steps.push_back(SnapshotStep::Directory { name, stat });
        }
        Ok(())
    }
}
