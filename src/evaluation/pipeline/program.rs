//! One program of a phase, in a sandbox of its own.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;

use super::output::MixedOutput;
use crate::egress::EgressGrant;
use crate::evaluation::trees::PhaseTree;
use cofferdam_core::{
    Bind, ExcessOutput, LimitKind, Limits, NotStarted, Outcome, RunReport, RunSpec, SetupFailure,
    Watch, WorkspacePath,
};

/// A program of a phase. Its stdin is empty.
#[derive(Debug)]
pub struct PhaseProgram<'a> {
    /// Its words.
    pub argv: &'a [String],
    /// Its whole environment.
    pub env: &'a BTreeMap<String, String>,
    /// What it may use.
    pub limits: Limits,
    /// What it sees of the service's files.
    pub binds: Vec<Bind>,
    /// What it may reach.
    pub egress: Option<&'a EgressGrant>,
}

/// Runs it to its end in the repository; all that it started is dead then.
///
/// # Errors
/// It did not start.
pub fn run_program(
    tree: &PhaseTree,
    place: &WorkspacePath,
    program: PhaseProgram<'_>,
    watch: &Watch,
    output: &MixedOutput,
) -> Result<RunReport, NotStarted> {
    let variables = program.env.iter().map(|(name, value)| format!("{name}={value}"));
    let spec = RunSpec {
        argv: c_strings(program.argv.iter().cloned())?,
        env: c_strings(variables)?,
        workdir: PathBuf::from(place.as_path()),
        limits: program.limits,
        excess_output: ExcessOutput::Dropped { stdout_bytes_max: 0, stderr_bytes_max: 0 },
        binds: program.binds,
        egress: program.egress.map(EgressGrant::service),
        ..RunSpec::default()
    };
    let watch = Watch::of(watch.cancel.clone());
    tree.run(spec, place, &watch, Some(Box::new(output.clone())))
}

/// The texts as the kernel takes them.
///
/// # Errors
/// One holds a NUL.
pub fn c_strings(texts: impl IntoIterator<Item = String>) -> Result<Vec<CString>, SetupFailure> {
    let converted = texts.into_iter().map(CString::new).collect::<Result<_, _>>();
    converted.map_err(|_| SetupFailure::from_words("arguments", "one holds a NUL"))
}

/// The exit code of a program that exited by itself.
pub fn exit_code(outcome: Outcome) -> Option<i32> {
    match outcome {
        Outcome::Exited { code } => Some(code.into()),
        Outcome::LimitHit { kind: LimitKind::Processes | LimitKind::Disk, code: Some(code) } => {
            Some(code.into())
        }
        _ => None,
    }
}
