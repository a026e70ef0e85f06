//! The step `running_agent`: what is graded is made.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::base::Installed;
use super::evaluating::{Evaluating, SteppedValue, sandbox_failed};
use super::open::OpenTask;
use crate::egress::EgressGrant;
use crate::egress::rules::WithheldValues;
use crate::egress::secret::Placeholders;
use crate::evaluation::patch::{GitPhase, apply_ready_patch};
use crate::evaluation::pipeline::comparison::room;
use crate::evaluation::pipeline::ending::EarlyEnd;
use crate::evaluation::pipeline::program::{PhaseProgram, exit_code, run_program};
use crate::evaluation::repository::{agent_path, phase_environment};
use crate::evaluation::request::AgentLanguage;
use crate::evaluation::request::{AgentLimitRule, EvaluatedWork};
use crate::evaluation::result::{AgentEnd, EvaluationStep};
use crate::evaluation::trees::{EvaluationRoot, FrozenFiles, PhaseTree};
use crate::executor::put_home_files;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{Bind, LimitKind, NetworkObject, Outcome, RunReport, SetupFailure};
use cofferdam_tree::StopCheck;

/// Where agents see their own file and the prompt.
const AGENT_DIRECTORY: &str = "/agent";
const TASK_DIRECTORY: &str = "/task";
const PROMPT: &str = "/task/prompt.md";
/// Where a task's own solution is, in the task and in the staging directory, and where it is seen.
const SOLUTION: &str = "solution";
const SOLUTION_DIRECTORY: &str = "/solution";
const SOLUTION_SCRIPT: &str = "solve.sh";
const STEP: EvaluationStep = EvaluationStep::RunningAgent;

impl Evaluating<'_> {
    /// Lets the agent work; returns what it left, or `None` if nothing has worked.
    ///
    /// # Errors
    /// A limit ended the agent, it did not start, or a ready patch does not apply.
    pub fn work(
        &mut self,
        open: &OpenTask,
        root: &EvaluationRoot,
        installed: &Installed,
    ) -> Result<Option<FrozenFiles>, EarlyEnd> {
        let request = self.call.request;
        if matches!(request.work, EvaluatedWork::Nothing) {
            return Ok(None);
        }
        self.step(STEP, |evaluating| {
            let room = room(evaluating.settings.disk_bytes_max);
            let mut tree = installed.base.files.fork(room).map_err(sandbox_failed(STEP))?;
            if let Some(tools) = &installed.tools {
                tree.show_tools(&tools.files).map_err(sandbox_failed(STEP))?;
            }
            match &request.work {
                EvaluatedWork::Nothing => {}
                EvaluatedWork::Agent { code, language } => {
                    let argv = evaluating.agent_argv(root, *language)?;
                    let binds =
                        stage_agent(open, &tree, code, *language).map_err(sandbox_failed(STEP))?;
                    let env = evaluating.call.request.agent_env.clone();
                    evaluating.run_agent(open, &tree, WorkingProgram { argv, binds, env })?;
                }
                EvaluatedWork::OracleScript(script) => {
                    let argv =
                        vec!["bash".into(), format!("{SOLUTION_DIRECTORY}/{SOLUTION_SCRIPT}")];
                    let binds = stage_solution(open, script).map_err(sandbox_failed(STEP))?;
                    let mut env = open.task.env.clone();
                    env.extend(open.task.solution_env.clone());
                    evaluating.run_agent(open, &tree, WorkingProgram { argv, binds, env })?;
                }
                EvaluatedWork::Patch(patch) => evaluating.apply(open, &tree, patch)?,
                EvaluatedWork::Oracle(patch) => {
                    evaluating.apply(open, &tree, patch).map_err(EarlyEnd::of_oracle)?;
                }
            }
            let left = tree.freeze(StopCheck(&|| evaluating.is_over()));
            let value = left.map(Some).map_err(sandbox_failed(STEP))?;
            Ok(SteppedValue { value, cached: false })
        })
    }

    fn apply(&self, open: &OpenTask, tree: &PhaseTree, patch: &[u8]) -> Result<(), EarlyEnd> {
        let git = GitPhase {
            tree,
            place: &open.place,
            bounds: self.settings.bounds,
            watch: self.watch,
            deadline: self.deadline,
        };
        apply_ready_patch(&git, patch.to_vec()).map_err(|error| EarlyEnd::of_patch(STEP, &error))
    }

    fn agent_argv(
        &self,
        root: &EvaluationRoot,
        language: AgentLanguage,
    ) -> Result<Vec<String>, EarlyEnd> {
        let command = self.parts.programs.command(language, root, self.call.request);
        command
            .map_err(sandbox_failed(STEP))?
            .ok_or_else(|| EarlyEnd::no_interpreter(language.file_name()))
    }

    fn run_agent(
        &mut self,
        open: &OpenTask,
        tree: &PhaseTree,
        working: WorkingProgram,
    ) -> Result<(), EarlyEnd> {
        let grant = self.grant().map_err(sandbox_failed(STEP))?;
        if let Some(grant) = &grant {
            put_home_files(tree.root(), tree.owner(), grant.service().as_ref());
        }
        let WorkingProgram { argv, binds, env } = working;
        let mut env = agent_environment(open, env, grant.as_ref());
        if tree.shows_tools() {
            env.insert("PATH".to_owned(), agent_path());
        }
        let wall = self.agent_timeout(open).min(self.deadline.remaining());
        let limits = self.bounds(&open.task).limits(wall);
        let program =
            PhaseProgram { argv: &argv, env: &env, limits, binds, egress: grant.as_ref() };
        let output = self.outputs.of(STEP, None);
        let ran = run_program(tree, &open.place, program, self.watch, &output);
        let (text, truncated) = output.text();
        self.result.agent_output = text;
        let report = ran.map_err(EarlyEnd::not_started)?;
        self.result.agent = Some(agent_end(&report, truncated));
        self.note_controls(&report);
        match report.outcome {
            Outcome::Cancelled => Err(EarlyEnd::cancelled(STEP)),
            Outcome::LimitHit { kind, .. } if self.is_over() || self.stops_at_limits() => {
                Err(EarlyEnd::agent_limit(kind, wall))
            }
            Outcome::LimitHit { .. } | Outcome::Exited { .. } | Outcome::Signaled { .. } => Ok(()),
        }
    }

    fn stops_at_limits(&self) -> bool {
        self.call.request.on_agent_limit == AgentLimitRule::Stop
    }

    fn agent_timeout(&self, open: &OpenTask) -> Duration {
        let asked = open.task.bounds.agent_timeout_secs.map(Duration::from_secs);
        let asked = asked.into_iter().chain(self.call.request.timeout);
        asked.fold(self.settings.agent_timeout, Duration::min)
    }

    fn grant(&self) -> Result<Option<EgressGrant>, SetupFailure> {
        let settings = self.settings;
        let asked = self.call.request.agent_network.as_ref().or(settings.agent_network.as_ref());
        let network = match asked {
            Some(network) => network.clone(),
            None => NetworkObject::of_hosts(settings.agent_hosts.clone()),
        };
        if network.hosts().is_empty() && network.secret_env.is_empty() {
            return Ok(None);
        }
        let (log, step) = (Arc::clone(&self.egress), Some(STEP.word().to_owned()));
        let placeholders = Placeholders::new_for(&network);
        let read = settings.egress.network(
            &network,
            self.call.owner,
            &placeholders,
            WithheldValues::Missing,
        );
        let network =
            read.map_err(|denial| SetupFailure::from_words("egress", denial.to_string()))?;
        Ok(Some(settings.egress.grant(network, log, step)))
    }
}

/// A program that works on the repository.
#[derive(Debug)]
struct WorkingProgram {
    argv: Vec<String>,
    /// What it sees of the service's files.
    binds: Vec<Bind>,
    /// Variables besides ours.
    env: BTreeMap<String, String>,
}

/// `env` with our variables, which win.
fn agent_environment(
    open: &OpenTask,
    mut env: BTreeMap<String, String>,
    grant: Option<&EgressGrant>,
) -> BTreeMap<String, String> {
    if weakened::lacks(Wall::Clean) {
        env.extend(std::env::vars());
    }
    env.extend(phase_environment(&open.place));
    env.extend(grant.map(EgressGrant::environment).unwrap_or_default());
    env.insert("TASK_PROMPT".to_owned(), PROMPT.to_owned());
    env
}

fn stage_agent(
    open: &OpenTask,
    tree: &PhaseTree,
    code: &[u8],
    language: AgentLanguage,
) -> Result<Vec<Bind>, SetupFailure> {
    let staging = &open.staging;
    let program = Path::new("agent").join(language.file_name());
    staging.write(&program, code)?;
    let agent = if tree.shows_tools() {
        // The directory is the sandbox's own, so that the tools are seen in it.
        let target = Path::new(AGENT_DIRECTORY).join(language.file_name());
        Bind { source: staging.path().join(program), target, read_only: true }
    } else {
        staging.bind("agent", AGENT_DIRECTORY)?
    };
    Ok(vec![agent, stage_prompt(open)?])
}

/// The task's directory `solution`, with `script` as its script.
fn stage_solution(open: &OpenTask, script: &[u8]) -> Result<Vec<Bind>, SetupFailure> {
    let (staging, place) = (&open.staging, Path::new(SOLUTION));
    let source = open.root.join(SOLUTION);
    if source.is_dir() {
        staging.copy_files(&source, place, StopCheck::never())?;
    }
    staging.replace(&place.join(SOLUTION_SCRIPT), script)?;
    Ok(vec![staging.bind(SOLUTION, SOLUTION_DIRECTORY)?, stage_prompt(open)?])
}

fn stage_prompt(open: &OpenTask) -> Result<Bind, SetupFailure> {
    let OpenTask { staging, task, root, .. } = open;
    match weakened::lacks(Wall::Hidden) {
        true => staging.copy_files(root, Path::new("task"), StopCheck::never())?,
        false => staging.write(Path::new("task/prompt.md"), task.prompt.as_bytes())?,
    }
    staging.bind("task", TASK_DIRECTORY)
}

fn agent_end(report: &RunReport, truncated: bool) -> AgentEnd {
    let code = exit_code(report.outcome);
    AgentEnd {
        exit_code: code,
        signal: if code.is_none() { report.outcome.signal() } else { None },
        limit: report.outcome.limit().map(LimitKind::word),
        truncated,
        usage: report.usage,
    }
}
