//! Applies what a command changed to the directories of the host.
//!
//! New contents are first written beside the directory's own entries. Then a journal says what is to be done, and
//! each step is one rename, removal or new directory. A process that dies meanwhile leaves the journal: the next
//! commit does the rest.

mod apply;
mod conflicts;
mod journal;
mod part;
mod plan;
mod staging;
mod steps;

use super::directories::TriedDirectory;
use super::listing::printed;
use crate::cli::failure::Failure;
use apply::apply;
use cofferdam_core::SetupFailure;
use cofferdam_tree::StopCheck;
use conflicts::{ConflictTime, find_conflicts};
use journal::{CommitJournal, CommitLock, recover_locked};
use nix::errno::Errno;
pub use part::{CommitPart, CommitRules};
use plan::CommitPlan;
use staging::Staging;

/// Does what an interrupted commit on `directory` left to do; returns what is to be said.
pub fn recover(directory: &TriedDirectory) -> Result<Vec<String>, SetupFailure> {
    recover_locked(&CommitLock::take(directory)?, directory)
}

/// Applies all changes, or none if one of them conflicts; returns what is to be said.
pub fn commit(
    parts: &[CommitPart<'_>],
    rules: CommitRules<'_>,
    stop: StopCheck<'_>,
) -> Result<Vec<String>, Failure> {
    let mut said = Vec::new();
    let mut locked = Vec::new();
    for part in parts {
        let lock = CommitLock::take(part.directory)?;
        said.extend(recover_locked(&lock, part.directory)?);
        let plan = CommitPlan::of(part, rules).map_err(failed("plan"))?;
        for (path, reason) in &plan.notes {
            let path = printed(&part.directory.shown(path, rules.several));
            said.push(format!("not committed: {path}: {reason}"));
        }
        locked.push((lock, part, plan));
    }
    refuse_conflicts(&locked, rules, ConflictTime::BeforeStaging)?;
    let mut staged = Vec::new();
    for (lock, part, plan) in &locked {
        let stage = Staging::fill(part, plan, stop).map_err(failed("write new files"))?;
        staged.push((lock, *part, plan, stage));
    }
    // Again, because writing took time. A staging that is dropped is removed.
    refuse_conflicts(&locked, rules, ConflictTime::AfterStaging)?;
    write_journals(&mut staged)?;
    for (lock, part, plan, mut stage) in staged {
        // After an error the next commit does the rest.
        let kept = apply(part.directory.as_fd(), Some(stage.as_fd()), &plan.steps);
        let kept = kept.map_err(failed("apply changes"))?;
        said.extend(kept.iter().map(|path| {
            let path = printed(&part.directory.shown(path, rules.several));
            format!("not committed: {path}: it was changed in the directory meanwhile")
        }));
        stage.set_needed(false);
        drop(stage);
        lock.forget()?;
    }
    Ok(said)
}

/// One directory whose new files are written.
type StagedCommit<'a> = (&'a CommitLock, &'a CommitPart<'a>, &'a CommitPlan, Staging<'a>);

/// Writes all journals, or none. If this process dies after that, the next commit finishes this one.
fn write_journals(staged: &mut [StagedCommit<'_>]) -> Result<(), SetupFailure> {
    for index in 0..staged.len() {
        let Some((lock, part, plan, stage)) = staged.get_mut(index) else { break };
        let journal = CommitJournal::new(part.directory, stage.name(), &plan.steps);
        match lock.write(&journal) {
            Ok(()) => stage.set_needed(true),
            Err(failure) => {
                for (lock, _, _, stage) in staged.iter_mut().take(index) {
                    lock.forget()?;
                    stage.set_needed(false);
                }
                return Err(failure);
            }
        }
    }
    Ok(())
}

fn refuse_conflicts(
    locked: &[(CommitLock, &CommitPart<'_>, CommitPlan)],
    rules: CommitRules<'_>,
    time: ConflictTime,
) -> Result<(), Failure> {
    let mut all = Vec::new();
    for (_, part, plan) in locked {
        let found = find_conflicts(part, plan, time).map_err(failed("look for conflicts"))?;
        all.extend(found.iter().map(|path| printed(&part.directory.shown(path, rules.several))));
    }
    if all.is_empty() { Ok(()) } else { Err(Failure::Conflict(all)) }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> SetupFailure {
    move |errno| SetupFailure::from_errno(step, errno as i32)
}
