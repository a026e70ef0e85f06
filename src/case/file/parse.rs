//! A case file as a whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::agents::{BUILT_IN, CaseHarness, HarnessKind};
use super::block::{CaseBlock, CaseField, CaseReading, unknown_key};
use super::environment::{CaseContainer, CaseEnvironment, CaseLimits, CaseSetup};
use super::finding::{CaseCode, CaseFinding, CaseReport};
use super::grader::CaseGrader;
use super::matrix::{CaseMatrix, MatrixName};
use super::node::{CASE_BYTES_MAX, YamlNode, YamlValue};
use super::paths::{WantedFile, host_path};
use super::source::{CaseFixtures, CaseOracle, CaseSource};
use crate::case::known_agents::is_known_agent;
use cofferdam_core::job::JobId;
use cofferdam_core::values::glob::Globs;

/// The name of the file in its directory.
const CASE_FILE: &str = "case.yaml";
const KEYS: [&str; 19] = [
    "id",
    "description",
    "availability",
    "task",
    "source",
    "fixtures",
    "environment",
    "container",
    "setup",
    "limits",
    "harnesses",
    "oracle",
    "matrix",
    "protect",
    "unprotect",
    "graders",
    "expect",
    "artifacts",
    "observe",
];

/// What to do when a repository cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// The Cells fail.
    Required,
    /// The Cells are skipped.
    Optional,
}

/// `task`: what the agent is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseTask {
    /// The prompt.
    pub prompt: String,
    /// What comes before it.
    pub system_prompt: Option<String>,
    /// Files that come after it.
    pub instruction_files: Vec<PathBuf>,
    /// Later prompts of one conversation.
    pub turns: Vec<String>,
}

/// A Case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its id.
    pub id: String,
    /// In words.
    pub description: String,
    /// What to do when a repository cannot be reached.
    pub availability: Availability,
    /// What the agent is told.
    pub task: CaseTask,
    /// The source, if any.
    pub source: Option<CaseSource>,
    /// Where hidden files are, if not beside the Case.
    pub fixtures: Option<CaseFixtures>,
    /// How the environment is made; nothing is provisioned without it.
    pub environment: Option<CaseEnvironment>,
    /// The container, if any.
    pub container: Option<CaseContainer>,
    /// What is done to the source first.
    pub setup: CaseSetup,
    /// Limits.
    pub limits: CaseLimits,
    /// The harnesses that the Case defines.
    pub harnesses: BTreeMap<String, CaseHarness>,
    /// What solves the Case, if known.
    pub oracle: Option<CaseOracle>,
    /// What is tried.
    pub matrix: CaseMatrix,
    /// More files that the agent may not change, as patterns.
    pub protect: Vec<String>,
    /// Protected files that it may change, as patterns.
    pub unprotect: Vec<String>,
    /// The graders.
    pub graders: Vec<CaseGrader>,
    /// The score that passes.
    pub pass_threshold: f64,
}

/// A Case that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedCase {
    /// The Case.
    pub case: Case,
    /// What may surprise its author.
    pub warnings: Vec<CaseFinding>,
}

/// Why a Case cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseFaults {
    /// All errors, in the order of the file.
    pub errors: Vec<CaseFinding>,
    /// What may surprise its author.
    pub warnings: Vec<CaseFinding>,
}

impl CaseFaults {
    fn of_file(code: CaseCode, message: impl Into<String>) -> Self {
        Self { errors: vec![CaseFinding::of_file(code, message)], warnings: Vec::new() }
    }
}

impl CaseReport {
    /// What `case validate` prints about a Case.
    pub fn of(loaded: Result<CheckedCase, CaseFaults>) -> Self {
        match loaded {
            Ok(CheckedCase { case, warnings }) => {
                Self::Valid { valid: true, cells: case.matrix.cells(), warnings }
            }
            Err(CaseFaults { errors, warnings }) => {
                Self::Invalid { valid: false, errors, warnings }
            }
        }
    }
}

/// Reads the Case at `path`: the file, or a directory with `case.yaml`.
///
/// # Errors
/// All errors of the file.
pub fn load_case(path: &Path) -> Result<CheckedCase, CaseFaults> {
    load_case_with_text(path).map(|(checked, _)| checked)
}

/// The same with the bytes that were parsed.
///
/// # Errors
/// All errors of the file.
pub fn load_case_with_text(path: &Path) -> Result<(CheckedCase, Vec<u8>), CaseFaults> {
    let file = if path.is_dir() { path.join(CASE_FILE) } else { path.to_owned() };
    if !file.is_file() {
        let message = format!("there is no file '{}'", file.display());
        return Err(CaseFaults::of_file(CaseCode::NotFound, message));
    }
    let mut bytes = Vec::new();
    let read =
        File::open(&file).and_then(|file| file.take(CASE_BYTES_MAX + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        let message = format!("'{}' cannot be read: {error}", file.display());
        return Err(CaseFaults::of_file(CaseCode::NotFound, message));
    }
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let checked = parse_case(&bytes, directory.unwrap_or(Path::new(".")))?;
    Ok((checked, bytes))
}

/// Parses a case file whose local paths start at `directory`.
fn parse_case(bytes: &[u8], directory: &Path) -> Result<CheckedCase, CaseFaults> {
    let node = YamlNode::parse(bytes)
        .map_err(|error| CaseFaults { errors: vec![error], warnings: Vec::new() })?;
    let mut reading = CaseReading::new(directory);
    let root = CaseField { node: &node, path: String::new() };
    let block = root.block(&mut reading, &KEYS);
    if !matches!(node.value, YamlValue::Map(_)) {
        let (errors, warnings) = reading.into_findings();
        return Err(CaseFaults { errors, warnings });
    }
    let case = read_case(&block, &mut reading);
    let (errors, warnings) = reading.into_findings();
    match errors.is_empty() {
        true => Ok(CheckedCase { case, warnings }),
        false => Err(CaseFaults { errors, warnings }),
    }
}

fn read_case(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> Case {
    for key in ["artifacts", "observe"] {
        if let Some(field) = block.get(key) {
            field.warn(reading, CaseCode::NoEffect, format!("'{key}' has no effect"));
        }
    }
    let fixtures = block.get("fixtures").map(|field| CaseFixtures::read(field, reading));
    let container = block.get("container").map(|field| CaseContainer::read(field, reading));
    let has_container = container.is_some();
    let environment = block.get("environment");
    let harnesses = block.written("harnesses").map(|field| CaseHarness::read_all(field, reading));
    let harnesses = harnesses.unwrap_or_default();
    let graders = block.written("graders").map(|field| field.items(reading)).unwrap_or_default();
    let case = Case {
        id: id(block, reading),
        description: block.text(reading, "description").unwrap_or_default(),
        availability: block.word(
            reading,
            "availability",
            &[("required", Availability::Required), ("optional", Availability::Optional)],
            Availability::Required,
        ),
        task: task(block, reading),
        source: block.get("source").map(|field| CaseSource::read(field, reading)),
        environment: environment.map(|field| CaseEnvironment::read(field, reading, has_container)),
        setup: block.get("setup").map(|field| CaseSetup::read(field, reading)).unwrap_or_default(),
        limits: block
            .get("limits")
            .map(|field| CaseLimits::read(field, reading))
            .unwrap_or_default(),
        oracle: block.get("oracle").and_then(|field| CaseOracle::read(field, reading)),
        matrix: matrix(block, reading, &harnesses),
        protect: patterns(block, reading, "protect"),
        unprotect: patterns(block, reading, "unprotect"),
        graders: graders
            .iter()
            .map(|field| CaseGrader::read(field, reading, fixtures.is_some()))
            .collect(),
        pass_threshold: pass_threshold(block, reading),
        fixtures,
        container,
        harnesses,
    };
    warn_of_turns(block, reading, &case);
    case
}

fn id(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> String {
    let Some(field) = block.required(reading, "id") else { return String::new() };
    let Some(id) = field.text(reading) else { return String::new() };
    if let Err(error) = JobId::parse(id) {
        field.error(reading, CaseCode::InvalidValue, error.to_string());
    }
    id.to_owned()
}

fn task(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> CaseTask {
    let Some(field) = block.get("task") else {
        // The page names the key that is required.
        reading.error(block.at, "task.prompt", CaseCode::Missing, "'prompt' is required");
        return CaseTask::default();
    };
    let task = field.block(reading, &["prompt", "system_prompt", "instruction_files", "turns"]);
    let files = task.written("instruction_files").map(|field| field.items(reading));
    let files = files.unwrap_or_default();
    let system_prompt = task.get("system_prompt").and_then(|field| field.text(reading));
    CaseTask {
        prompt: task.required_text(reading, "prompt"),
        system_prompt: system_prompt.map(str::to_owned),
        instruction_files: files
            .iter()
            .filter_map(|file| host_path(file, reading, WantedFile::File))
            .collect(),
        turns: task.texts(reading, "turns"),
    }
}

/// The matrix, whose harnesses have to be defined.
fn matrix(
    block: &CaseBlock<'_>,
    reading: &mut CaseReading<'_>,
    harnesses: &BTreeMap<String, CaseHarness>,
) -> CaseMatrix {
    let Some(field) = block.required(reading, "matrix") else { return CaseMatrix::default() };
    let (matrix, named) = CaseMatrix::read(field, reading);
    for MatrixName { name, path, at } in named {
        if name == "oracle" && block.get("oracle").is_none() {
            reading.error(at, "oracle", CaseCode::Missing, "the matrix names the oracle");
        }
        let is_known = BUILT_IN.contains(&name.as_str())
            || is_known_agent(&name)
            || harnesses.contains_key(&name);
        if !is_known {
            let known: Vec<&str> = harnesses.keys().map(String::as_str).chain(BUILT_IN).collect();
            let message = unknown_key(&name, &known).replace("unknown key", "unknown harness");
            reading.error(at, &path, CaseCode::NotFound, message);
        }
    }
    matrix
}

/// Patterns of files.
fn patterns(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>, key: &str) -> Vec<String> {
    let items = block.written(key).map(|field| field.items(reading)).unwrap_or_default();
    let mut patterns = Vec::new();
    for item in items {
        let Some(text) = item.text(reading) else { continue };
        match Globs::parse(&[text]) {
            Ok(_) => patterns.push(text.to_owned()),
            Err(error) => item.error(reading, CaseCode::InvalidValue, error.to_string()),
        }
    }
    patterns
}

fn pass_threshold(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> f64 {
    let Some(field) = block.get("expect") else { return 1.0 };
    field.block(reading, &["pass_threshold"]).number(reading, "pass_threshold", 1.0, 1.0)
}

/// Notes that later prompts are for the chat loop alone.
fn warn_of_turns(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>, case: &Case) {
    let is_openai = |name: &str| {
        let kind = case.harnesses.get(name).and_then(|harness| harness.kind.as_ref());
        matches!(kind, Some(HarnessKind::Openai { .. }))
    };
    let all_are = case.matrix.entries.iter().all(|entry| is_openai(&entry.harness));
    if case.task.turns.is_empty() || all_are {
        return;
    }
    reading.warn(
        block.at,
        "task.turns",
        CaseCode::NoEffect,
        "only harnesses of kind 'openai' have turns",
    );
}
