//! What a commit does, in order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use super::part::{CommitPart, CommitRules};
use super::steps::{CommitStep, RawPath, StepAction, WasState};
use crate::cli::check::exec::overlay::changes::{PathDifference, text_at};
use crate::cli::check::exec::overlay::states::{NodeKind, NodeState};
use crate::evaluation::patch::entry::{ancestors, open_directory, split};

const SET_ID_BITS: u32 = 0o6000;
const SET_GID_BIT: u32 = 0o2000;

/// A file that is written before the first step.
#[derive(Debug)]
pub struct StagedFile {
    /// Where the command left it.
    pub path: Vec<u8>,
    pub state: NodeState,
    pub owner: (u32, u32),
    pub source: NewContents,
}

/// Where its contents come from.
#[derive(Debug, PartialEq, Eq)]
pub enum NewContents {
    /// It is copied or made.
    Copied,
    /// It is another name of the staged file with this number.
    NameOfStaged(usize),
    /// It is another name of a file whose contents did not change.
    NameOf(Vec<u8>),
}

/// The steps and what they need.
#[derive(Debug, Default)]
pub struct CommitPlan {
    pub steps: Vec<CommitStep>,
    /// By their numbers.
    pub staged: Vec<StagedFile>,
    /// The changes that are not applied, or not wholly, with the reason.
    pub notes: BTreeMap<Vec<u8>, &'static str>,
    left_out: BTreeMap<Vec<u8>, &'static str>,
}

impl CommitPlan {
    /// Plans the commit of `part`.
    pub fn of(part: &CommitPart<'_>, rules: CommitRules<'_>) -> Result<Self, Errno> {
        let mut plan = Self::default();
        plan.leave_out(part, rules)?;
        plan.keep_what_holds(part);
        plan.notes = plan.left_out.clone();
        plan.add_removals(part);
        plan.add_new(part, rules);
        plan.add_attributes(part, rules);
        Ok(plan)
    }

    /// Whether nothing is done at `path`.
    pub fn leaves_out(&self, path: &[u8]) -> bool {
        self.left_out.contains_key(path)
    }

    /// The files that get a further name before the first step.
    pub fn further_named(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.staged.iter().filter_map(|file| match &file.source {
            NewContents::NameOf(path) => Some(path),
            NewContents::Copied | NewContents::NameOfStaged(_) => None,
        })
    }

    fn leave_out(&mut self, part: &CommitPart<'_>, rules: CommitRules<'_>) -> Result<(), Errno> {
        for (path, difference) in &part.changes.paths {
            let reason = if ancestors(path).any(|above| self.left_out.contains_key(above)) {
                Some("its directory is left out")
            } else if rules.protect.covers(path, [difference.before, difference.after]) {
                Some("it is protected")
            } else {
                match difference.after.map(|after| after.kind) {
                    Some(NodeKind::Device) => Some("a device"),
                    Some(NodeKind::Link) => {
                        let merged = part.overlaid.merged();
                        let text = text_at(merged, path)?;
                        let directory = part.directory.path();
                        let is_out = rules.links.leads_out(directory, merged, path, &text);
                        is_out.then_some("a link that leads out of the directory")
                    }
                    _ => None,
                }
            };
            if let Some(reason) = reason {
                self.left_out.insert(path.clone(), reason);
            }
        }
        Ok(())
    }

    /// Also leaves out that directories go that hold what stays.
    fn keep_what_holds(&mut self, part: &CommitPart<'_>) {
        let stays = |path: &[u8]| {
            part.changes.paths.get(path).is_some_and(|difference| difference.before.is_some())
        };
        let staying: Vec<Vec<u8>> =
            self.left_out.keys().filter(|path| stays(path)).cloned().collect();
        for path in staying {
            for above in ancestors(&path).filter(|above| stays(above)) {
                self.left_out.entry(above.to_vec()).or_insert("it holds what is left out");
            }
        }
    }

    fn changes<'a>(
        &self,
        part: &CommitPart<'a>,
    ) -> impl DoubleEndedIterator<Item = (&'a Vec<u8>, &'a PathDifference)> {
        part.changes.paths.iter().filter(|(path, _)| !self.left_out.contains_key(*path))
    }

    /// First what goes, what a directory holds before the directory.
    fn add_removals(&mut self, part: &CommitPart<'_>) {
        let mut steps = Vec::new();
        for (path, difference) in self.changes(part).rev() {
            let Some(before) = difference.before else { continue };
            let becomes_directory =
                difference.after.is_some_and(|after| after.kind == NodeKind::Directory);
            if before.kind == NodeKind::Directory {
                steps.push(step(path, StepAction::RemoveDirectory));
            } else if difference.after.is_none() || becomes_directory {
                steps.push(step(path, StepAction::Remove { was: before.into() }));
            }
        }
        self.steps.append(&mut steps);
    }

    /// Then what comes, a directory before what it holds.
    fn add_new(&mut self, part: &CommitPart<'_>, rules: CommitRules<'_>) {
        let changes: Vec<_> = self.changes(part).collect();
        let old_names = old_names(part);
        let mut first_names = HashMap::new();
        for (path, difference) in changes {
            let Some(after) = difference.after else { continue };
            let owner = owner_of(part, rules, difference, after);
            if after.kind == NodeKind::Directory {
                let (uid, gid) = owner;
                self.steps.push(step(path, StepAction::MakeDirectory { uid, gid }));
                continue;
            }
            if has_only_another_mode(difference) {
                continue;
            }
            let number = self.staged.len();
            let source = source_of(part, after, &old_names, &mut first_names, number);
            let was = difference.before.filter(|before| before.kind != NodeKind::Directory);
            let action = StepAction::Place { staged: number, was: was.map(WasState::from) };
            self.steps.push(step(path, action));
            self.staged.push(StagedFile { path: path.clone(), state: after, owner, source });
            if after.mode & SET_ID_BITS != 0 {
                self.notes.insert(path.clone(), "its set-id bits");
            }
        }
    }

    /// Last the modes of directories, what a directory holds first, and what else has only other attributes.
    fn add_attributes(&mut self, part: &CommitPart<'_>, rules: CommitRules<'_>) {
        let changes: Vec<_> = self.changes(part).rev().collect();
        for (path, difference) in changes {
            let Some(after) = difference.after else { continue };
            let is_made = after.kind == NodeKind::Directory;
            if !is_made && !has_only_another_mode(difference) {
                continue;
            }
            let before = difference.before.filter(|_| !is_made);
            let mode = Some(after.mode & !SET_ID_BITS);
            let modified = (!is_made).then_some(after.modified);
            let was = before.map(WasState::from);
            self.steps.push(step(path, StepAction::SetAttributes { mode, modified, was }));
            let is_inherited = is_made && is_below_set_gid(part, path);
            let inherited = if is_inherited { SET_GID_BIT } else { 0 };
            if after.mode & SET_ID_BITS & !inherited != 0 {
                self.notes.insert(path.clone(), "its set-id bits");
            }
        }
        for (path, after) in part.changes.attributes.iter().rev() {
            let is_covered = rules.protect.covers(path, [Some(*after), Some(*after)])
                || ancestors(path).any(|above| self.left_out.contains_key(above));
            if !is_covered {
                self.steps.push(step(path, other_attributes(*after)));
            }
        }
    }
}

/// The step of a directory with another mode, or of a file with other times.
fn other_attributes(after: NodeState) -> StepAction {
    let is_directory = after.kind == NodeKind::Directory;
    let mode = is_directory.then_some(after.mode & !SET_ID_BITS);
    let modified = (!is_directory).then_some(after.modified);
    StepAction::SetAttributes { mode, modified, was: None }
}

fn has_only_another_mode(difference: &PathDifference) -> bool {
    let is_link = difference.after.is_some_and(|after| after.kind == NodeKind::Link);
    difference.has_same_contents && !is_link
}

/// Paths that files with several names had, by their inodes and times of change. What was renamed with its directory
/// has both as before.
type OldNames<'a> = HashMap<(u64, (i64, i64)), &'a Vec<u8>>;

fn old_names<'a>(part: &CommitPart<'a>) -> OldNames<'a> {
    let mut names = HashMap::new();
    for (path, difference) in &part.changes.paths {
        if let Some(before) = difference.before
            && before.has_other_names
            && before.kind != NodeKind::Directory
            && before.mode & SET_ID_BITS == 0
        {
            names.insert((before.identity.1, before.changed), path);
        }
    }
    names
}

/// Where the contents of the staged file with this number come from. `first_names` are the numbers of files
/// with several names.
fn source_of(
    part: &CommitPart<'_>,
    after: NodeState,
    old_names: &OldNames<'_>,
    first_names: &mut HashMap<(u64, u64), usize>,
    number: usize,
) -> NewContents {
    if !after.has_other_names {
        return NewContents::Copied;
    }
    let name = part.changes.same_names.get(&after.identity);
    if let Some(name) = name.or_else(|| old_names.get(&(after.identity.1, after.changed)).copied())
    {
        return NewContents::NameOf(name.clone());
    }
    match first_names.entry(after.identity) {
        Entry::Occupied(first) => NewContents::NameOfStaged(*first.get()),
        Entry::Vacant(place) => {
            place.insert(number);
            NewContents::Copied
        }
    }
}

/// Whether new entries of the directory above `path` get its group.
fn is_below_set_gid(part: &CommitPart<'_>, path: &[u8]) -> bool {
    let opened = open_directory(part.overlaid.merged(), split(path).0);
    let status = opened.ok().and_then(|parent| fstat(parent.as_fd()).ok());
    status.is_some_and(|status| status.st_mode & SET_GID_BIT != 0)
}

fn step(path: &[u8], action: StepAction) -> CommitStep {
    CommitStep { path: RawPath(path.to_vec()), action }
}

/// A changed file keeps its owner; a new one is the directory's owner's.
fn owner_of(
    part: &CommitPart<'_>,
    rules: CommitRules<'_>,
    difference: &PathDifference,
    after: NodeState,
) -> (u32, u32) {
    match difference.before {
        Some(before) if before.kind == after.kind => before.owner,
        _ => {
            let (uid, gid) = part.directory.owner();
            (uid, if after.owner.1 == rules.host_id { gid } else { after.owner.1 })
        }
    }
}
