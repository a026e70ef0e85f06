//! The comparison of what an agent left with what it got.

use super::base::CellBase;
use crate::case::cell::executor::{AgentDifference, DifferenceRules};
use crate::case::cell::plan::StepLimits;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::patch::{PatchError, RestoreRules};
use crate::evaluation::pipeline::{ComparedWork, Comparison};
use crate::evaluation::task::VerifyRules;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{SetupFailure, Watch, WorkspacePath};

/// Compares the files `left` of an agent with `base`, of which they are a copy. Returns the difference and what graders
/// get.
pub(in crate::case::cell) fn compare(
    (base, left): (&CellBase, &CellBase),
    limits: &StepLimits,
    rules: &DifferenceRules,
    (cancel, deadline): (&CancelToken, Deadline),
) -> Result<(AgentDifference, CellBase), PatchError> {
    let comparison = Comparison {
        bounds: PhaseBounds {
            memory_bytes_max: limits.memory_bytes_max,
            processes_max: limits.processes_max,
            cpus_milli_max: None,
        },
        disk_bytes_max: limits.disk_bytes_max,
        patch_bytes_max: rules.patch_bytes_max,
        place: &WorkspacePath::default(),
        base: base.files(),
        watch: &Watch::of(cancel.clone()),
        deadline,
    };
    let ComparedWork { patch, omitted, withheld, graded } =
        comparison.run(left.files(), &restore_rules(rules)?, |_| Ok(()))?;
    let difference = AgentDifference { patch, omitted, protected: withheld };
    Ok((difference, CellBase(graded)))
}

fn restore_rules(rules: &DifferenceRules) -> Result<RestoreRules, PatchError> {
    let verify = VerifyRules { restore: rules.protect.clone(), keep: rules.unprotect.clone() };
    RestoreRules::new(&verify, &rules.solution)
        .and_then(|made| made.always(&rules.always))
        .map_err(|words| PatchError::Sandbox(SetupFailure::from_words("protect", words)))
}
