//! `cofferdam run`: one `POST /run` without a server.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::attended::Attended;
use super::boxes::{Found, Places};
use super::failure::{Failure, error_words};
use super::figures;
use super::input_file::read_input;
use super::passthrough::Broken;
use super::report::CheckOutput;
use crate::check::request::CheckRequest;
use crate::check::run::CheckReport;
use crate::config::Config;
use cofferdam_core::{OutputSink, RunReport};

const EXAMPLES: &str = "\
Examples:
  cofferdam run --lang python solution.py
  cofferdam run --lang cpp solution.cpp --checker checker.cpp --timeout 10s
  cofferdam run --lang js - --asserts asserts.json --json <solution.js

Exit codes: those of `cofferdam exec`; 125 also for a language that is not available here";

/// Runs a solution as a POST /run does, with the limits of the RUN_* variables.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// The language, as `cofferdam langs` lists them
    #[arg(long, value_name = "SLUG")]
    lang: String,
    /// The solution; `-` for stdin
    #[arg(value_name = "FILE")]
    solution: PathBuf,
    /// The checker, for languages that require one
    #[arg(long, value_name = "FILE")]
    checker: Option<PathBuf>,
    /// What becomes asserts.json; the workspace's own stays without it
    #[arg(long, value_name = "FILE")]
    asserts: Option<PathBuf>,
    /// Wall-clock time, as 500ms or 30s [default: 30s]
    #[arg(long, value_name = "D", value_parser = figures::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    places: Places,
    /// Print one JSON object at the end instead of the output as it comes
    #[arg(long)]
    json: bool,
}

impl Run {
    /// Runs the check to its end; the exit code is the contract's.
    pub fn run(self) -> Result<u8, Failure> {
        let Self { lang, solution, checker, asserts, timeout, places, json } = self;
        let config = places.config()?;
        let bytes_max = config.input_bytes_max;
        let read = |name: &str, path: Option<&Path>| {
            path.map(|path| read_text(name, path, bytes_max)).transpose()
        };
        let request = CheckRequest {
            lang_slug: lang,
            solution_text: read_text("FILE", &solution, bytes_max)?,
            checker_text: read("--checker", checker.as_deref())?,
            asserts: read("--asserts", asserts.as_deref())?,
            timeout: timeout.unwrap_or(config.limits.wall),
        };
        let found = Found::look(&config)?;
        found.has_workspace()?;
        check_options(&found, &request)?;
        let attended = Attended::begin()?;
        let checked = |sink| check(&config, found, request, &attended, sink);
        let (report, broken) = if json {
            let report = checked(None);
            let broken =
                report.as_ref().map_or(Ok(None), |report| print_json(&report.run, &attended))?;
            (report, broken)
        } else {
            let (report, broken) = attended.pass_through(|sink| checked(Some(sink)))?;
            if let Ok(CheckReport { last_words: Some(words), .. }) = &report {
                // As for a shell, there is nobody to tell that it could not be said.
                let _ = io::stderr().write_all(words.as_bytes());
            }
            (report, broken)
        };
        attended.exit_code(report.map(|report| report.run.outcome), broken)
    }
}

fn check(
    config: &Config,
    found: Found,
    request: CheckRequest,
    attended: &Attended,
    sink: Option<Box<dyn OutputSink>>,
) -> Result<CheckReport, Failure> {
    let checking = found.open(config.isolation, Vec::new())?;
    let admitted = checking.runner_of_one(config)?.admit(request)?;
    Ok(admitted.run(&attended.watch(), sink)?)
}

fn print_json(report: &RunReport, attended: &Attended) -> Result<Option<Broken>, Failure> {
    let text = serde_json::to_string(&CheckOutput::of(report))
        .map_err(|error| Failure::Write { what: "the result", source: error.into() })?;
    attended.print(&(text + "\n"))
}

/// Says in terms of options what a request would be refused for.
fn check_options(found: &Found, request: &CheckRequest) -> Result<(), Failure> {
    let slug = &request.lang_slug;
    let language = found.language(slug).ok_or_else(|| {
        Failure::option("--lang", format!("{slug:?} is not supported; see `cofferdam langs`"))
    })?;
    match (&language.checker, &request.checker_text) {
        (Some(_), None) => Err(Failure::option("--checker", format!("{slug} requires a checker"))),
        _ => Ok(()),
    }
}

/// The text in `path`, at most `bytes_max` of it; `-` is stdin.
fn read_text(name: &str, path: &Path, bytes_max: Option<u64>) -> Result<String, Failure> {
    let fault = |words: &str| Failure::option(name, format!("{}: {words}", path.display()));
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let bytes = read_input(path, bytes_max).map_err(|error| fault(&error_words(&error)))?;
    if u64::try_from(bytes.len()).is_ok_and(|count| count > bytes_max) {
        return Err(fault(&format!("more than RUN_INPUT_MAX, which is {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| fault("not UTF-8; want a text file"))
}
