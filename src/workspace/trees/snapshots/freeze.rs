//! Freezes the files of a workspace as they are: its newest layer while nothing runs, or a copy of it
//! while its programs are frozen.

use std::sync::Arc;
use std::time::Duration;

use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::service::live::{LiveProgram, LiveWorkspace, ProgramKind};
use crate::workspace::trees::{FrozenTree, LoneTree};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::sync::run_control::{ControlError, RunControl};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::StopCheck;

/// How long requests that use the files, and programs that start or end, are waited for.
const DOORS_WAIT: Duration = Duration::from_secs(5);
/// How long programs are frozen at most.
const FROZEN_MAX: Duration = Duration::from_secs(1);
/// How long layers are put together at most, so that they are not too many.
const SQUASH_MAX: Duration = Duration::from_secs(10);

/// The files of the workspace as they are now.
///
/// # Errors
/// [`EngineCode::SnapshotUnavailable`] if they cannot be had in time, or so much cannot be charged.
pub fn freeze_files(live: &LiveWorkspace) -> Result<Arc<dyn FrozenTree>, EngineError> {
    let deadline = Deadline::after(DOORS_WAIT);
    let tree = live.doors().enter_alone(deadline);
    let mut tree = tree.ok_or_else(|| unavailable("files are still being transferred"))?;
    // No other is in, so no program is about to get its mounts, and no other begins.
    let programs = live.programs();
    if programs.is_empty() {
        let late = Deadline::after(SQUASH_MAX);
        let frozen = tree.freeze(StopCheck(&|| late.passed()));
        live.note_layers(&**tree);
        live.charge_layers(&**tree)?;
        let frozen = frozen?;
        charge_copy(live, &*frozen)?;
        return Ok(frozen);
    }
    wait_started(live, &programs, deadline)?;
    copy_frozen(live, &tree, &programs, deadline)
}

/// Charges what is a copy.
fn charge_copy(live: &LiveWorkspace, frozen: &dyn FrozenTree) -> Result<(), EngineError> {
    frozen.charge_layers(&mut |bytes, _| Ok(Retained::of(Arc::new(live.charge_more(bytes)?))))
}

/// Waits until each program is executed or dead.
fn wait_started(
    live: &LiveWorkspace,
    programs: &[(u64, LiveProgram)],
    deadline: Deadline,
) -> Result<(), EngineError> {
    for (number, control) in controlled(programs) {
        let is_settled = match control.wait_started(deadline) {
            Some(Ok(())) => true,
            Some(Err(_)) => live.wait_program(number, deadline),
            None => false,
        };
        if !is_settled {
            return Err(unavailable("a program is still being started"));
        }
    }
    Ok(())
}

/// Copies the newest layer while all programs are frozen.
fn copy_frozen(
    live: &LiveWorkspace,
    tree: &LoneTree<'_>,
    programs: &[(u64, LiveProgram)],
    deadline: Deadline,
) -> Result<Arc<dyn FrozenTree>, EngineError> {
    let late = Deadline::after(FROZEN_MAX);
    let mut frozen_programs = FrozenPrograms::default();
    for (number, control) in controlled(programs) {
        if weakened::lacks(Wall::Freeze) {
            break;
        }
        let left = late.remaining();
        match control.freeze(left, left) {
            Ok(()) => frozen_programs.0.push(control),
            Err(ControlError::Ended) if live.wait_program(number, deadline.min(late)) => {}
            Err(ControlError::Ended) => return Err(unavailable("a program is about to die")),
            Err(error) => {
                return Err(unavailable(&format!("the programs cannot be frozen: {error}")));
            }
        }
    }
    // All that the copy may need, before it is made.
    let mut charge = live.charge_more(tree.usage()?.own_bytes())?;
    let copied = tree.copy(StopCheck(&|| late.passed()));
    if !frozen_programs.thaw() {
        return Err(unavailable("the copy took longer than programs may be frozen"));
    }
    let copied = copied?;
    copied.charge_layers(&mut |bytes, is_in_memory| {
        if bytes > charge.bytes() {
            charge.set(bytes)?;
        }
        Ok(Retained::of(Arc::new(charge.split_off(bytes, is_in_memory))))
    })?;
    Ok(copied)
}

/// The programs that are processes, unlike calls. The one sandbox of a workspace stands for all that
/// is in it.
fn controlled(programs: &[(u64, LiveProgram)]) -> impl Iterator<Item = (u64, &RunControl)> {
    let is_sandbox = |program: &LiveProgram| program.kind == ProgramKind::Sandbox;
    let has_sandbox = programs.iter().any(|(_, program)| is_sandbox(program));
    let meant = programs.iter().filter(move |(_, program)| !has_sandbox || is_sandbox(program));
    meant.filter_map(|(number, program)| Some((*number, program.control.as_ref()?)))
}

/// Programs that are frozen until this is dropped.
#[derive(Debug, Default)]
struct FrozenPrograms<'a>(Vec<&'a RunControl>);

impl FrozenPrograms<'_> {
    /// Lets them go on. Returns whether none did before.
    fn thaw(&mut self) -> bool {
        let thawed = self.0.drain(..).map(RunControl::thaw);
        // One that was killed meanwhile has written nothing.
        thawed.fold(true, |all, thawed| all & matches!(thawed, Ok(()) | Err(ControlError::Ended)))
    }
}

impl Drop for FrozenPrograms<'_> {
    fn drop(&mut self) {
        self.thaw();
    }
}

fn unavailable(words: &str) -> EngineError {
    EngineError::new(EngineCode::SnapshotUnavailable, words)
}
