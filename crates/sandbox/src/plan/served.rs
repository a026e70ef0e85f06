//! The steps of a sandbox that lasts, and of each program that it starts.

use std::ffi::{CStr, CString};

use crate::init::wire::{FIRST_FREE_FD, PLAN_FD, RELEASE_FD};
use crate::plan::ChildPlan;
use crate::plan::input::{PlanInput, ProgramSource, TASKS_FD};
use crate::plan::program::{close_steps, identity_steps, named_command};
use crate::plan::restrictions::{lock_step, profile_steps, restrict_self_steps};
use crate::plan::setup::setup_steps;
use crate::plan::steps::Step;
use crate::plan::steps::identity::IdentityStep;
use crate::plan::steps::process::{ProcessStep, Rlimit};
use crate::plan::steps::start::StartStep;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{Limits, SetupFailure};
use cofferdam_seccomp::filter::Filter;

/// A program in a sandbox that lasts.
#[derive(Debug)]
pub struct ServedInput<'a> {
    /// Its filter.
    pub filter: &'a Filter,
    /// It and its arguments.
    pub argv: &'a [CString],
    /// The argv to execute instead, without a shell, if that succeeds.
    pub without_shell: Option<&'a [CString]>,
    /// The whole environment.
    pub env: &'a [CString],
    /// The working directory inside.
    pub workdir: &'a CStr,
    /// Its limits.
    pub limits: &'a Limits,
    /// The limit of processes that the kernel counts by uid.
    pub uid_processes_max: u64,
    /// How many `tasks` files it joins, from [`FIRST_FREE_FD`] on.
    pub task_files: i32,
    /// Whether standard input, output and error are a terminal.
    pub has_terminal: bool,
    /// Whether standard input is the sandbox's own null device.
    pub null_stdin: bool,
    /// Whether PID 1 has a short scheduler slice, and the program gets a long one.
    pub short_slices: bool,
}

/// Plans PID 1 of a sandbox that lasts: its `task_files` are those of the sandbox's group, which
/// becomes the root of groups inside, its `program_task_files` those of its own group below.
///
/// # Errors
/// There are too many paths to show.
pub fn build_server(input: &PlanInput<'_>) -> Result<ChildPlan, SetupFailure> {
    let mut setup = setup_steps(input)?;
    // No program waits for this init.
    setup.retain(|step| *step != Step::from(StartStep::HoldProgram));
    Ok(ChildPlan { setup, program: Vec::new(), guard: server_steps(input) })
}

/// Plans a program of such a sandbox.
pub fn build_served(input: &ServedInput<'_>) -> ChildPlan {
    ChildPlan { setup: Vec::new(), program: served_steps(input), guard: Vec::new() }
}

/// Everything that restricts a program, but for its filter and its own limits: PID 1 and the programs
/// have it in common. A process that only programs had to enter would be one that they do not share.
fn server_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let first = TASKS_FD + input.task_files;
    let own_group = first..first + input.program_task_files;
    let mut steps = vec![Step::from(ProcessStep::UnshareCgroup)];
    steps.extend(own_group.map(|fd| Step::from(ProcessStep::JoinCgroup { fd })));
    steps.extend([ProcessStep::NewSession, ProcessStep::ResetSignals].map(Step::from));
    let uid = input.host_id;
    // In a user namespace without root, the saved uid can never be taken again.
    let is_hidden = !weakened::lacks(Wall::Init);
    let set_uid = match input.user_namespace && is_hidden {
        true => IdentityStep::SetUidButSaved { uid },
        false => IdentityStep::SetUid { uid },
    };
    steps.extend(identity_steps(input, set_uid));
    steps.push(ProcessStep::DieWithParent.into());
    let identity = [
        IdentityStep::ClearAmbientSet,
        IdentityStep::ClearCapabilities,
        IdentityStep::NoNewPrivileges,
    ];
    steps.extend(identity.map(Step::from));
    if let Some(landlock) = input.landlock {
        steps.extend(restrict_self_steps(landlock, c"/run/.refused"));
    }
    let (plan, after) = (PLAN_FD.unsigned_abs(), RELEASE_FD.unsigned_abs() + 1);
    steps.push(ProcessStep::CloseFrom { first: after }.into());
    steps.push(ProcessStep::CloseRange { first: plan, last: plan }.into());
    steps.extend(lock_step(input.locks));
    steps.extend(is_hidden.then_some(Step::from(IdentityStep::MakeUndumpable)));
    steps.push(StartStep::ReportPrepared.into());
    steps
}

fn served_steps(input: &ServedInput<'_>) -> Vec<Step> {
    let groups = FIRST_FREE_FD..FIRST_FREE_FD + input.task_files;
    let mut steps: Vec<Step> =
        groups.map(|fd| Step::from(ProcessStep::JoinCgroup { fd })).collect();
    steps.push(ProcessStep::NewSession.into());
    steps.extend(input.has_terminal.then_some(Step::from(ProcessStep::TakeTerminal)));
    // PID 1 has reset their dispositions.
    steps.push(ProcessStep::UnblockSignals.into());
    steps.extend(input.null_stdin.then_some(Step::from(ProcessStep::OpenNullStdin)));
    for (limit, value) in [
        (Rlimit::Processes, input.uid_processes_max),
        (Rlimit::FileSize, input.limits.file_bytes_max),
    ] {
        steps.push(ProcessStep::SetLimit { limit, value }.into());
    }
    steps.push(ProcessStep::EnterDirectory { path: input.workdir.to_owned() }.into());
    steps.extend(close_steps(ProgramSource::Named).map(Step::from));
    let (before_wait, after_wait) = profile_steps(input.filter);
    steps.extend(before_wait);
    let value = input.limits.open_files_max;
    steps.extend([
        ProcessStep::SetLimit { limit: Rlimit::OpenFiles, value }.into(),
        StartStep::AwaitRelease.into(),
    ]);
    steps.extend(input.short_slices.then_some(ProcessStep::SetLongSlice.into()));
    steps.extend(after_wait);
    steps.push(StartStep::ReportReady.into());
    let command = |argv| named_command(argv, input.env);
    steps.extend(input.without_shell.map(|argv| StartStep::TryExec(command(argv)).into()));
    steps.push(StartStep::Exec(command(input.argv)).into());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::steps::restrict::RestrictStep;

    fn program(filter: &Filter) -> ChildPlan {
        build_served(&ServedInput {
            filter,
            argv: &[c"true".to_owned()],
            without_shell: None,
            env: &[],
            workdir: c"/workspace",
            limits: &Limits::default(),
            uid_processes_max: 7,
            task_files: 2,
            has_terminal: false,
            null_stdin: true,
            short_slices: false,
        })
    }

    #[test]
    fn a_program_joins_its_groups_first_and_has_its_filter_before_it_is_executed() {
        let profile = crate::plan::builtin_profile::builtin_profile("default").unwrap();
        let plan = program(profile.filter_for(false));
        let join = |fd| Step::from(ProcessStep::JoinCgroup { fd });
        assert_eq!(plan.program[..2], [join(FIRST_FREE_FD), join(FIRST_FREE_FD + 1)]);
        let filters =
            plan.program.iter().enumerate().filter(|(_, step)| {
                matches!(step, Step::Restrict(RestrictStep::InstallFilter { .. }))
            });
        let filters: Vec<usize> = filters.map(|(index, _)| index).collect();
        let last = plan.program.len() - 1;
        assert!(filters.len() == 1 && filters[0] < last, "{filters:?}");
        assert!(matches!(plan.program[last], Step::Start(StartStep::Exec(_))));
        assert!(!plan.program.contains(&IdentityStep::MakeDumpable.into()));
    }
}
