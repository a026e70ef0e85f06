//! `cofferdam evaluate`: evaluates an agent or a patch on a task, without a server.

mod predictions;
mod report;
pub mod service;
pub mod task;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};
use uuid::Uuid;

use crate::cli::failure::{Failure, error_words};
use crate::cli::foreground::Foreground;
use crate::cli::options::file_secrets::egress_with_secrets;
use crate::cli::options::value_parsers;
use crate::cli::stdio::{print, read_input, say};
use crate::config::{Config, Overrides};
use crate::evaluation::pipeline::{EvaluationCall, EvaluationObserver};
use crate::evaluation::request::AgentLanguage;
use crate::evaluation::request::{AgentLimitRule, EvaluatedWork, EvaluationRequest, TaskPlace};
use crate::evaluation::result::{EvaluationFailure, EvaluationResult, EvaluationStep, TestResult};
use crate::evaluation::service::EvaluationsError;
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::values::utc::rfc3339;
use predictions::{HarnessReport, Prediction, converted_tasks, parse_predictions};
use report::{Outputs, exit_code, keep_record, report_code, report_runs};
use service::EvaluationHost;

/// The longest file of predictions, bytes.
const PREDICTIONS_BYTES_MAX: u64 = 256 << 20;
/// The longest ready patch, bytes.
const PATCH_BYTES_MAX: u64 = 64 << 20;
/// The longest series of runs.
const REPEAT_MAX: u64 = 1000;

const EXAMPLES: &str = "\
Examples:
  cofferdam evaluate task --oracle task/solution.patch
  cofferdam evaluate harbor-task --oracle harbor-task/solution/solve.sh
  cofferdam evaluate task --agent agent.py --timeout 5m --json
  cofferdam evaluate https://tasks.example/task.tar.gz --nop
  cofferdam evaluate tasks --predictions predictions.jsonl

Prints the verdict, or the result as one line of JSON. Progress is on stderr.
Exit codes: 0 resolved; 1 unresolved or partial; 3 no_tests; 4 infra_error; 5 runs that differ;
  124 timed_out; 130 cancelled, 143 by SIGTERM; 2 usage";

/// Evaluates an agent or a patch on a task: its tests run over what was changed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("work").required(true).args(["agent", "oracle", "nop", "predictions"])))]
pub struct EvaluateCommand {
    /// The task: a URL, an archive or a directory; with --predictions a directory of converted tasks
    #[arg(value_name = "TASK")]
    task: PathBuf,
    /// Run this agent
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// The agent's language [default: that of the file's extension, else python]
    #[arg(long, value_name = "L", requires = "agent", conflicts_with_all = ["oracle", "nop"])]
    language: Option<String>,
    /// Apply this patch, the task's solution, or run it if it is a script of bash, such as solution/solve.sh
    #[arg(long, value_name = "PATCH")]
    oracle: Option<PathBuf>,
    /// Change nothing
    #[arg(long)]
    nop: bool,
    /// Grade the patches of this file, a prediction for SWE-bench a line, and print its harness's report
    #[arg(long, value_name = "FILE.jsonl", conflicts_with_all = ["repeat", "junit", "patch", "timeout"])]
    predictions: Option<PathBuf>,
    /// Evaluate so many times
    #[arg(long, value_name = "N", value_parser = value_parsers::count)]
    repeat: Option<u64>,
    /// The longest that the agent may run [default and maximum: AGENT_TIMEOUT_SECS, 600]
    #[arg(long, value_name = "D", value_parser = value_parsers::duration)]
    timeout: Option<Duration>,
    /// Print the whole result
    #[arg(long)]
    json: bool,
    /// Write the tests' results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the patch
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// Keep the record in this store
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// The root file system of the sandboxes instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR")]
    rootfs: Option<PathBuf>,
}

impl EvaluateCommand {
    /// Evaluates; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        let overrides = Overrides { rootfs: self.rootfs.clone(), ..Overrides::default() };
        let (config, problems) = Config::read(std::env::vars_os(), &overrides);
        let config = problems.none_or(config)?;
        let count = self.repeat.unwrap_or(1);
        if !(1..=REPEAT_MAX).contains(&count) {
            let words = format!("{count}; want 1 to {REPEAT_MAX}");
            return Err(Failure::option("--repeat", words));
        }
        if let Some(file) = &self.predictions {
            return self.grade_predictions(&config, file);
        }
        let work = self.work(config.evaluations.agent_code_bytes_max)?;
        let task = self.task_place()?;
        let foreground = Foreground::begin()?;
        let service = self.host(&config)?;
        let request = self.request(task, work);
        service.pipeline().check("", &request).map_err(|error| refused(&error))?;
        let outputs = Outputs {
            json: self.json,
            repeated: self.repeat.is_some(),
            junit: self.junit.as_deref(),
            patch: self.patch.as_deref(),
            store_dir: self.store_dir.as_deref(),
        };
        outputs.check()?;
        let runs = evaluate(&service, &request, count, &foreground);
        print(&report_runs(&runs, &outputs)?)?;
        Ok(foreground.signal_code().unwrap_or_else(|| exit_code(&runs)))
    }

    /// Grades each prediction, and prints the report.
    fn grade_predictions(&self, config: &Config, file: &Path) -> Result<u8, Failure> {
        let tasks = converted_tasks(&self.task)?;
        let bytes = read("--predictions", file, PREDICTIONS_BYTES_MAX)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::option("--predictions", "it is not UTF-8 text"))?;
        let predictions = parse_predictions(&text, &tasks)?;
        let foreground = Foreground::begin()?;
        let service = self.host(config)?;
        let mut report = HarnessReport::new(tasks.keys());
        for Prediction { instance_id: id, model_patch } in predictions {
            let Some(patch) = model_patch.filter(|patch| !patch.is_empty()) else {
                report.add_empty(&id);
                continue;
            };
            let Some(place) = tasks.get(&id) else { continue };
            say(&id);
            let work = EvaluatedWork::Patch(patch.into_bytes());
            let request = self.request(TaskPlace::Directory(place.clone()), work);
            for result in evaluate(&service, &request, 1, &foreground) {
                if let Some(store) = &self.store_dir {
                    keep_record(store, &result)?;
                }
                report.add(&id, &result);
            }
            if foreground.signal_code().is_some() {
                break;
            }
        }
        let fault =
            |error: serde_json::Error| Failure::Write { what: "the report", source: error.into() };
        print(&(serde_json::to_string(&report).map_err(fault)? + "\n"))?;
        Ok(foreground.signal_code().unwrap_or_else(|| report_code(&report)))
    }

    fn host(&self, config: &Config) -> Result<EvaluationHost, Failure> {
        let (egress, mut private) = egress_with_secrets(config.secrets.as_ref())?;
        private.extend(config.evaluations.network_files.iter().cloned());
        EvaluationHost::open(config, self.store_dir.as_deref(), &egress, &private)
    }

    fn task_place(&self) -> Result<TaskPlace, Failure> {
        let path = self.task.clone();
        if let Some(url) = path.to_str().filter(|text| text.contains("://")) {
            let fault = |error| Failure::option("TASK", format!("{url}: {error}"));
            WebUrl::parse(url).map_err(fault)?;
            return Ok(TaskPlace::Url { url: url.to_owned(), sha256: None });
        }
        let metadata = fs::metadata(&path).map_err(|error| self.task_fault(&error))?;
        let is_directory = metadata.is_dir();
        Ok(if is_directory { TaskPlace::Directory(path) } else { TaskPlace::Archive(path) })
    }

    fn request(&self, task: TaskPlace, work: EvaluatedWork) -> EvaluationRequest {
        EvaluationRequest {
            task,
            work,
            timeout: self.timeout,
            agent_env: BTreeMap::new(),
            agent_network: None,
            agent_install: Vec::new(),
            rootfs: None,
            on_agent_limit: AgentLimitRule::Stop,
            fresh: false,
            labels: BTreeMap::new(),
        }
    }

    fn work(&self, agent_bytes_max: u64) -> Result<EvaluatedWork, Failure> {
        if let Some(path) = &self.agent {
            let language = language(self.language.as_deref(), path)?;
            let code = read("--agent", path, agent_bytes_max)?;
            if code.is_empty() {
                return Err(Failure::option("--agent", "an empty file"));
            }
            return Ok(EvaluatedWork::Agent { code, language });
        }
        let Some(path) = &self.oracle else { return Ok(EvaluatedWork::Nothing) };
        let bytes = read("--oracle", path, PATCH_BYTES_MAX)?;
        if path.extension().is_some_and(|extension| extension == "sh") {
            // The solution of a Harbor task is a program.
            return Ok(EvaluatedWork::OracleScript(bytes));
        }
        Ok(EvaluatedWork::Oracle(bytes))
    }

    fn task_fault(&self, error: &std::io::Error) -> Failure {
        Failure::option("TASK", format!("{}: {}", self.task.display(), error_words(error)))
    }
}

fn evaluate(
    service: &EvaluationHost,
    request: &EvaluationRequest,
    count: u64,
    foreground: &Foreground,
) -> Vec<EvaluationResult> {
    let mut runs = Vec::new();
    for _ in 0..count {
        let (id, created_at) = (Uuid::new_v4().to_string(), rfc3339(SystemTime::now()));
        let call = EvaluationCall { id: &id, created_at: &created_at, owner: "", request };
        let run = service.pipeline().evaluate(&call, &foreground.watch(), &ProgressLines);
        if let Some(failure) = &run.failure {
            say(&failure_line(failure));
        }
        runs.push(run);
        if foreground.signal_code().is_some() {
            break;
        }
    }
    runs
}

/// The option that this host cannot serve.
fn refused(error: &EvaluationsError) -> Failure {
    match error {
        EvaluationsError::Invalid { field, message, .. } if field == "timeout_secs" => {
            Failure::option("--timeout", message.as_str())
        }
        EvaluationsError::LanguageUnavailable(_) => Failure::option("--agent", error.to_string()),
        error => Failure::option("TASK", error.to_string()),
    }
}

/// Why an evaluation ended early, as one line: its code, the step and the message.
fn failure_line(failure: &EvaluationFailure) -> String {
    let EvaluationFailure { code, step, message, .. } = failure;
    format!("{code}: {}: {}", step.word(), message.replace('\n', " "))
}

fn language(name: Option<&str>, path: &Path) -> Result<AgentLanguage, Failure> {
    if let Some(name) = name {
        let unknown = || Failure::option("--language", format!("{name:?} is not a known language"));
        return AgentLanguage::of_name(name).ok_or_else(unknown);
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    Ok(extension.and_then(AgentLanguage::of_name).unwrap_or(AgentLanguage::Python))
}

fn read(option: &str, path: &Path, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let fault = |words: &str| Failure::option(option, format!("{}: {words}", path.display()));
    let bytes = read_input(path, bytes_max).map_err(|error| fault(&error_words(&error)))?;
    if bytes.len() as u64 > bytes_max {
        return Err(fault(&format!("more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Writes each step and each test to stderr.
#[derive(Debug)]
struct ProgressLines;

impl EvaluationObserver for ProgressLines {
    fn step(&self, step: EvaluationStep) {
        say(step.word());
    }

    fn test(&self, result: &TestResult) {
        say(&format!("{} {}", if result.passed { "PASS" } else { "FAIL" }, result.name));
    }
}
