//! The graders `pytest` and `swebench`, which run tests by our runner.

use std::path::PathBuf;
use std::time::Duration;

use super::built_in::StepRun;
use super::files::inject_files;
use super::grader::{GradeError, GradeInputs, Grader};
use super::pytest::{
    PytestGrade, PytestRun, PytestTask, PytestWanted, SwebenchGrades, grade_pytest, grade_swebench,
    run_pytest,
};
use super::score::{GraderScore, GraderWeight};
use crate::case::cell::CellExecutor;
use crate::case::file::{CaseGrader, GraderKind, InjectedFile, TestCounts};

/// The gate on `pass_to_pass`.
const REGRESSION: &str = "swebench-regression";
/// The longest time of a grader.
const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 7);

/// Grades all tests of a suite.
#[derive(Debug)]
struct PytestGrader {
    counts: GraderWeight,
    tests: TestCounts,
}

/// Grades tests by their ids.
#[derive(Debug)]
struct SwebenchGrader {
    counts: GraderWeight,
    gate_weight: f64,
    fail_to_pass: Vec<String>,
    pass_to_pass: Vec<String>,
    inject: Vec<InjectedFile>,
    cmd_prefix: String,
    timeout_s: f64,
}

/// The grader of `written` that runs tests by our runner; `None` for all others, and after an error in the Case.
pub fn python_grader(written: &CaseGrader) -> Option<Box<dyn Grader>> {
    let counts = GraderWeight { weight: written.weight, gate: written.gate };
    match written.kind.clone()? {
        GraderKind::Pytest { counts: tests } => Some(Box::new(PytestGrader { counts, tests })),
        GraderKind::Swebench {
            fail_to_pass,
            pass_to_pass,
            inject,
            cmd_prefix,
            timeout_s,
            gate_weight,
        } => Some(Box::new(SwebenchGrader {
            counts,
            gate_weight,
            fail_to_pass,
            pass_to_pass,
            inject,
            cmd_prefix,
            timeout_s,
        })),
        _ => None,
    }
}

impl Grader for PytestGrader {
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        inputs: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError> {
        let TestCounts { inject, expect_total, pass_threshold, timeout_s, .. } = &self.tests;
        inject_files(cell, &inputs.hidden, inject)?;
        let names: Vec<PathBuf> = inject.iter().map(|file| file.destination.clone()).collect();
        let task = PytestTask::of_names(&names);
        let (run, step) = run_task(cell, &task, inputs, *timeout_s)?;
        let wanted = PytestWanted { expect_total: *expect_total, pass_threshold: *pass_threshold };
        let grade = in_time(grade_pytest(&run.report, wanted), &step, *timeout_s);
        Ok(vec![score("pytest", self.counts, grade, &step)])
    }
}

impl Grader for SwebenchGrader {
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        inputs: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError> {
        inject_files(cell, &inputs.hidden, &self.inject)?;
        let ids = self.fail_to_pass.iter().chain(&self.pass_to_pass);
        let Some(task) = PytestTask::of_ids(&self.cmd_prefix, ids) else {
            let words = format!("'{}' runs no pytest", self.cmd_prefix);
            return Ok(vec![GraderScore::new("swebench", self.counts, (0.0, false), words)]);
        };
        let (run, step) = run_task(cell, &task, inputs, self.timeout_s)?;
        let SwebenchGrades { fixed, regression } =
            grade_swebench(&run.report, &self.fail_to_pass, &self.pass_to_pass);
        let gate = GraderWeight { weight: self.gate_weight, gate: true };
        Ok(vec![
            score("swebench", self.counts, fixed, &step),
            score(REGRESSION, gate, regression, &step),
        ])
    }
}

fn run_task(
    cell: &dyn CellExecutor,
    task: &PytestTask,
    inputs: &GradeInputs,
    timeout_s: f64,
) -> Result<(PytestRun, StepRun), GradeError> {
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(TIMEOUT_MAX).min(TIMEOUT_MAX);
    let run = run_pytest(cell, task, inputs.env.clone(), timeout)?;
    let step = StepRun::of(&run.result)?;
    Ok((run, step))
}

/// The grade, or that of a run that was out of time: tests that did not end have failed, and how many there are is not
/// known.
fn in_time(grade: PytestGrade, step: &StepRun, timeout_s: f64) -> PytestGrade {
    match step.timed_out {
        true => PytestGrade {
            value: 0.0,
            passed: false,
            explanation: format!("out of time after {timeout_s} s"),
            ..grade
        },
        false => grade,
    }
}

fn score(name: &str, counts: GraderWeight, grade: PytestGrade, step: &StepRun) -> GraderScore {
    let PytestGrade { value, passed, explanation, details } = grade;
    let mut score = GraderScore::new(name, counts, (value, passed), explanation)
        .with("returncode", step.returncode);
    score.details.extend(details);
    // Its stdout is the report.
    if passed { score } else { score.with("tail", step.stderr_tail()) }
}
