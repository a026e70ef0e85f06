//! What to run and where, turned into the ordered steps that create the sandbox.

pub(crate) mod builtin_profile;
pub(crate) mod encode;
pub(crate) mod input;
pub(crate) mod mounted;
pub(crate) mod program;
pub(crate) mod restrictions;
pub mod rootfs;
pub(crate) mod scheduler_slice;
pub(crate) mod sent_program;
pub(crate) mod setup;
pub(crate) mod steps;

use crate::init::wire::{PLAN_FD, STATUS_FD};
use crate::plan::encode::{EncodedPlan, Encoder, PlanTooLarge};
use crate::plan::program::program_steps;
use crate::plan::restrictions::install;
use crate::plan::sent_program::AREA_BYTES;
use crate::plan::setup::setup_steps;
use crate::plan::steps::Step;
use crate::plan::steps::identity::IdentityStep;
use crate::plan::steps::process::ProcessStep;
use crate::plan::steps::restrict::RestrictStep;
use crate::plan::steps::start::StartStep;
use cofferdam_core::SetupFailure;
use cofferdam_seccomp::filter::Filter;

pub use crate::plan::input::{PATH_DEFAULT, PlanInput, PlannedTmpfs, PlannedTree, ProgramSource};
pub use crate::plan::mounted::PlannedWorkspace;
pub use crate::plan::steps::mount::PlannedLayer;

/// The steps of one sandbox, in order, in three stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildPlan {
    /// PID 1, before the program's process exists.
    pub setup: Vec<Step>,
    /// The program's process, ending in exec.
    pub program: Vec<Step>,
    /// PID 1, once the program's process exists.
    pub guard: Vec<Step>,
}

impl ChildPlan {
    /// Step `index`, counted through the three stages.
    pub fn step(&self, index: u32) -> Option<&Step> {
        let mut steps = self.setup.iter().chain(&self.program).chain(&self.guard);
        steps.nth(usize::try_from(index).ok()?)
    }

    /// The name of step `index`. A failure before the plan has a name too.
    pub fn step_name(&self, index: u32) -> String {
        self.step(index).map_or_else(|| "start init".to_owned(), Step::name)
    }

    /// Whether the supervisor decides on every file lock.
    pub fn watches_locks(&self) -> bool {
        self.program
            .iter()
            .any(|step| matches!(step, Step::Restrict(RestrictStep::WatchLocks { .. })))
    }

    /// Whether the program is sent when the sandbox is resumed.
    pub fn awaits_program(&self) -> bool {
        self.program.contains(&Step::Start(StartStep::AwaitProgram))
    }

    /// Encodes the plan as the init reads it.
    pub fn encode(&self) -> Result<EncodedPlan, PlanTooLarge> {
        let area = if self.awaits_program() { AREA_BYTES } else { 0 };
        let mut out = Encoder::with_area(area);
        let mut index = 0;
        for stage in [&self.setup, &self.program, &self.guard] {
            for step in stage {
                out.begin_step(index);
                step.encode(&mut out);
                index += 1;
            }
            out.end_list();
        }
        out.finish()
    }
}

/// Plans the steps for `input`.
pub fn build(input: &PlanInput<'_>) -> Result<ChildPlan, SetupFailure> {
    Ok(ChildPlan {
        setup: setup_steps(input)?,
        program: program_steps(input),
        guard: guard_steps(input.init_filter),
    })
}

/// The steps of the init after it forks: it keeps its status pipe and the few calls of its own
/// profile, and only then lets the program's process continue.
fn guard_steps(filter: &Filter) -> Vec<Step> {
    vec![
        ProcessStep::CloseRange { first: 0, last: STATUS_FD.unsigned_abs() - 1 }.into(),
        ProcessStep::CloseFrom { first: PLAN_FD.unsigned_abs() + 1 }.into(),
        IdentityStep::MakeUndumpable.into(),
        IdentityStep::ClearCapabilities.into(),
        IdentityStep::NoNewPrivileges.into(),
        install(filter),
        StartStep::ReleaseProgram.into(),
    ]
}
