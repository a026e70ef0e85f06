//! Mounts what is staged, where that is possible.

use std::time::Duration;

use crate::workspace::error::EngineError;
use crate::workspace::service::live::LiveWorkspace;
use crate::workspace::trees::{FoundTree, KeptTree, begin_tree, mount_at};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::files::{DirectorySource, FileLocation, StageBatch, WorkspaceRoot};

/// How long another request that makes the same tree is waited for.
const MAKING_WAIT: Duration = Duration::from_secs(30);
/// How long programs are waited for that have ended and are still counted.
const ENDING_WAIT: Duration = Duration::from_millis(50);
/// How long requests that use the files are waited for.
const DOORS_WAIT: Duration = Duration::from_secs(5);

/// The read-only tree with the files of `source`, which is the stored skill with the digest `skill` or something else.
/// None if the workspace `live` could not mount it now.
pub fn kept_tree(
    live: &LiveWorkspace,
    source: DirectorySource<'_>,
    skill: Option<&str>,
) -> Option<KeptTree> {
    if !live.wait_programs(Deadline::after(ENDING_WAIT)) {
        return None;
    }
    let trees = live.doors().share().mountable()?;
    let _turn = match skill {
        None => None,
        Some(digest) => match trees.find_skill(digest, Deadline::after(MAKING_WAIT)) {
            FoundTree::Kept(kept) => return Some(kept),
            FoundTree::Turn(turn) => Some(turn),
            FoundTree::TimedOut => return None,
        },
    };
    let draft = begin_tree(&**live.doors().share());
    let made = draft.and_then(|draft| trees.make(draft, source, live.charge_shared(), skill));
    made.inspect_err(|error| log::debug!(workspace_id = live.id; "no read-only tree: {error}")).ok()
}

/// Mounts `kept` at the place that `locate` returns, with what `add` adds to the batch, if nothing runs in the
/// workspace. Programs that run keep what they see, so there is no way to mount it then. Returns the place.
pub fn mount_alone(
    live: &LiveWorkspace,
    kept: &KeptTree,
    locate: impl FnOnce(&WorkspaceRoot<'_>) -> Result<FileLocation, EngineError>,
    add: impl FnOnce(&WorkspaceRoot<'_>, &mut StageBatch<'_>, &FileLocation) -> Result<(), EngineError>,
) -> Option<FileLocation> {
    let mut tree = live.doors().enter_alone(Deadline::after(DOORS_WAIT))?;
    // No program begins while another is not in.
    if !live.programs().is_empty() {
        return None;
    }
    let root = WorkspaceRoot { directory: tree.root(), rule: live.rule(), owner: tree.owner() };
    let to = locate(&root).ok()?;
    let add = |root: &WorkspaceRoot<'_>, batch: &mut StageBatch<'_>| add(root, batch, &to);
    let mounted = mount_at(&mut **tree, live.rule(), &to, kept, add);
    mounted.inspect_err(|error| log::debug!(workspace_id = live.id; "no mount: {error}")).ok()?;
    Some(to)
}
