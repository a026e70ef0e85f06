//! What evaluations print and write, and their exit codes.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::predictions::HarnessReport;
use crate::cli::failure::{Failure, TIME_LIMIT};
use crate::evaluation::result::{EvaluationResult, EvaluationVerdict};
use crate::evaluation::service::junit::junit_of;

const UNRESOLVED: u8 = 1;
const NO_TESTS: u8 = 3;
const INFRA_ERROR: u8 = 4;
const DIFFERENT_RUNS: u8 = 5;
const CANCELLED: u8 = 130;

/// What is wanted of the results.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// The whole results instead of the verdicts.
    pub json: bool,
    /// Whether a number of runs was asked for.
    pub repeated: bool,
    /// The file for JUnit XML, of the last run.
    pub junit: Option<&'a Path>,
    /// The file for the patch, of the last run.
    pub patch: Option<&'a Path>,
    /// The store in which records are kept.
    pub store_dir: Option<&'a Path>,
}

#[derive(Serialize)]
struct RepeatedRuns<'a> {
    runs: &'a [EvaluationResult],
    flaky: bool,
}

impl Outputs<'_> {
    /// Fails if a file that is wanted cannot be written, before anything runs. What is in the file stays.
    pub fn check(&self) -> Result<(), Failure> {
        let files = [("--junit", self.junit), ("--patch", self.patch)];
        for (option, path) in files.into_iter().filter_map(|(option, path)| Some((option, path?))) {
            let opened = fs::File::options().write(true).create(true).truncate(false).open(path);
            opened.map_err(|source| cannot_write(option, source))?;
        }
        Ok(())
    }
}

/// Writes the files that are wanted; returns what is printed.
pub fn report_runs(runs: &[EvaluationResult], outputs: &Outputs<'_>) -> Result<String, Failure> {
    let Some(last) = runs.last() else { return Ok(String::new()) };
    if let Some(path) = outputs.junit {
        fs::write(path, junit_of(last)).map_err(|source| cannot_write("--junit", source))?;
    }
    if let Some(path) = outputs.patch {
        fs::write(path, patch_bytes(last)).map_err(|source| cannot_write("--patch", source))?;
    }
    for run in runs {
        if let Some(store) = outputs.store_dir {
            keep_record(store, run)?;
        }
    }
    if !outputs.json {
        return Ok(runs.iter().map(|run| format!("{}\n", verdict(run).word())).collect());
    }
    let text = if outputs.repeated {
        serde_json::to_string(&RepeatedRuns { runs, flaky: is_flaky(runs) })
    } else {
        serde_json::to_string(last)
    };
    Ok(text.map_err(|error| cannot_write("the result", error.into()))? + "\n")
}

/// The exit code of all runs.
pub fn exit_code(runs: &[EvaluationResult]) -> u8 {
    if is_flaky(runs) {
        return DIFFERENT_RUNS;
    }
    match runs.last().map_or(EvaluationVerdict::InfraError, verdict) {
        EvaluationVerdict::Resolved => 0,
        EvaluationVerdict::Unresolved | EvaluationVerdict::Partial => UNRESOLVED,
        EvaluationVerdict::NoTests => NO_TESTS,
        EvaluationVerdict::InfraError => INFRA_ERROR,
        EvaluationVerdict::TimedOut => TIME_LIMIT,
        EvaluationVerdict::Cancelled => CANCELLED,
    }
}

/// The exit code of a report of predictions.
pub fn report_code(report: &HarnessReport) -> u8 {
    match (report.has_errors(), report.is_resolved()) {
        (true, _) => INFRA_ERROR,
        (false, true) => 0,
        (false, false) => UNRESOLVED,
    }
}

/// Keeps the record of `run` in the store.
pub fn keep_record(store: &Path, run: &EvaluationResult) -> Result<(), Failure> {
    keep(store, run).map_err(|source| cannot_write("the record", source))
}

fn is_flaky(runs: &[EvaluationResult]) -> bool {
    runs.windows(2).any(|pair| matches!(pair, [one, other] if verdict(one) != verdict(other)))
}

fn verdict(run: &EvaluationResult) -> EvaluationVerdict {
    run.verdict.unwrap_or(EvaluationVerdict::InfraError)
}

fn patch_bytes(run: &EvaluationResult) -> Vec<u8> {
    let text = run.agent_patch.clone().unwrap_or_default();
    if run.patch.as_ref().is_some_and(|patch| patch.encoding == "base64") {
        return STANDARD.decode(text).unwrap_or_default();
    }
    text.into_bytes()
}

fn keep(store: &Path, run: &EvaluationResult) -> io::Result<()> {
    let directory = store.join("evaluations").join(&run.eval_id);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("result.json"), serde_json::to_vec(run)?)?;
    fs::write(directory.join("patch"), patch_bytes(run))
}

fn cannot_write(what: &'static str, source: io::Error) -> Failure {
    Failure::Write { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_all_runs() {
        use EvaluationVerdict::{
            Cancelled, InfraError, NoTests, Partial, Resolved, TimedOut, Unresolved,
        };
        for (verdicts, code) in [
            (&[Resolved][..], 0),
            (&[Resolved, Resolved], 0),
            (&[Unresolved], 1),
            (&[Partial], 1),
            (&[NoTests], 3),
            (&[InfraError], 4),
            (&[TimedOut], 124),
            (&[Cancelled], 130),
            (&[Resolved, Unresolved, Resolved], 5),
            (&[Partial, Unresolved], 5),
            (&[], 4),
        ] {
            let run = |verdict: &EvaluationVerdict| EvaluationResult {
                verdict: Some(*verdict),
                ..EvaluationResult::pending(String::new(), String::new())
            };
            let runs: Vec<EvaluationResult> = verdicts.iter().map(run).collect();
            assert_eq!(exit_code(&runs), code, "{verdicts:?}");
        }
    }
}
