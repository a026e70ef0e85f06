//! The step `running_tests`: each test in a fresh sandbox over the graded files.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::comparison::room;
use super::output::{MixedOutput, OutputRules};
use super::program::{PhaseProgram, exit_code, run_program};
use super::report::{Reported, make_room, read_report};
use super::settings::PipelineSettings;
use super::staging::StagingDirectory;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::is_raised;
use crate::evaluation::repository::with_variables;
use crate::evaluation::result::{EvaluationStep, TestResult};
use crate::evaluation::task::{Task, TaskTest, TestRun};
use crate::evaluation::trees::{FrozenFiles, PhaseTree};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{LimitKind, Outcome, RunReport, SetupFailure, Watch, WorkspacePath};
use cofferdam_tree::StopCheck;

/// Where tests see the task's tests, in the staging directory and in their sandbox.
const STAGED: &str = "tests";
const SHOWN: &str = "/tests";
/// The exit code of a test that did not exit.
const NO_EXIT: i32 = -1;

/// Runs a task's tests.
#[derive(Debug)]
pub struct TestPhase<'a> {
    /// What holds for every evaluation.
    pub settings: &'a PipelineSettings,
    /// The task.
    pub task: &'a Task,
    /// Where sandboxes see the repository.
    pub place: &'a WorkspacePath,
    /// What each test gets.
    pub graded: &'a FrozenFiles,
    /// Where its tests are staged.
    pub staging: &'a StagingDirectory,
    /// What each sandbox may use.
    pub bounds: PhaseBounds,
    /// What becomes of its output.
    pub outputs: &'a OutputRules,
    /// Ends it.
    pub watch: &'a Watch,
    /// When the evaluation has to be over.
    pub deadline: Deadline,
}

/// A test that has ended.
#[derive(Debug)]
pub struct EndedTest {
    /// Its result.
    pub result: TestResult,
    /// What decides, where its exit code does not.
    pub reported: Reported,
    /// How its sandbox ended.
    pub report: RunReport,
    /// What it left.
    pub tree: PhaseTree,
}

impl TestPhase<'_> {
    /// Runs one test; `None` if it was cancelled, or the evaluation's time was over.
    ///
    /// # Errors
    /// Its sandbox failed.
    pub fn run(&self, test: &TaskTest) -> Result<Option<EndedTest>, SetupFailure> {
        let settings = self.settings;
        let timeout = self.timeout();
        let wall = timeout.min(self.deadline.remaining());
        if wall.is_zero() {
            return Ok(None);
        }
        let mut tree = self.graded.fork(room(settings.disk_bytes_max))?;
        let is_over = || is_raised(&self.watch.cancel) || self.deadline.passed();
        make_room(&mut tree, &self.task.grading, StopCheck(&is_over))?;
        let began = Instant::now();
        let output = self.outputs.of(EvaluationStep::RunningTests, Some(&test.name));
        let env = self.environment();
        let bash = tree.shell("bash", &env)?;
        let program = PhaseProgram {
            argv: &words(bash, test),
            env: &env,
            limits: self.bounds.limits(wall),
            binds: vec![self.staging.bind(STAGED, SHOWN)?],
            egress: None,
        };
        let report = run_program(&tree, self.place, program, self.watch, &output)
            .map_err(|error| error.into_failure("exec bash"))?;
        let is_over = self.deadline.passed()
            && matches!(report.outcome, Outcome::LimitHit { kind: LimitKind::WallTime, .. });
        if report.outcome == Outcome::Cancelled || is_over {
            return Ok(None);
        }
        let mut result = test_result(test, report.outcome, &output, began.elapsed());
        // Nothing of its sandbox is alive, so what is read stays.
        let reported = read_report(&tree, &self.task.grading, &result);
        if let Reported::Reward(reward) = &reported {
            result.passed = reward.as_ref().is_ok_and(|reward| *reward >= 1.0);
        }
        Ok(Some(EndedTest { result, reported, report, tree }))
    }

    fn timeout(&self) -> Duration {
        let asked = self.task.bounds.test_timeout_secs.map(Duration::from_secs);
        asked.unwrap_or(Duration::MAX).min(self.settings.test_timeout)
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let variables = self.task.env.clone().into_iter().chain(self.task.tests_env.clone());
        let mut env = with_variables(self.place, variables);
        env.insert("TESTS_DIR".to_owned(), SHOWN.to_owned());
        env
    }
}

fn words(bash: String, test: &TaskTest) -> Vec<String> {
    match &test.run {
        TestRun::Script => vec![bash, format!("{SHOWN}/{}", test.name)],
        TestRun::Command(command) => vec![bash, "-ec".to_owned(), command.clone()],
    }
}

fn test_result(
    test: &TaskTest,
    outcome: Outcome,
    output: &MixedOutput,
    duration: Duration,
) -> TestResult {
    let (output, truncated) = output.text();
    let code = exit_code(outcome);
    TestResult {
        name: test.name.clone(),
        kind: test.kind,
        passed: outcome == Outcome::Exited { code: 0 },
        exit_code: code.unwrap_or(NO_EXIT),
        signal: if code.is_none() { outcome.signal() } else { None },
        limit: outcome.limit().map(LimitKind::word),
        output,
        truncated,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    }
}

/// The block of a test in `test_output`.
pub fn block(result: &TestResult) -> String {
    let TestResult { name, exit_code, output, .. } = result;
    let gap = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    format!("=== {name} (exit {exit_code}) ===\n{output}{gap}")
}
