//! `cofferdam run`: one `POST /run` without a server.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::check::request::CheckRequest;
use crate::check::run::CheckReport;
use crate::cli::failure::{Failure, error_words};
use crate::cli::foreground::Foreground;
use crate::cli::foreground::passthrough::BrokenStream;
use crate::cli::foreground::report::CheckReportJson;
use crate::cli::options::sandbox_options::{ResolvedConfig, SandboxOptions};
use crate::cli::options::value_parsers;
use crate::cli::stdio::read_input;
use crate::config::Config;
use cofferdam_core::{OutputSink, RunReport};

const EXAMPLES: &str = "\
Examples:
  cofferdam run --lang python solution.py
  cofferdam run --lang cpp solution.cpp --checker checker.cpp --timeout 10s
  cofferdam run --lang js - --asserts asserts.json --json <solution.js

Exit codes: those of `cofferdam exec`; 125 also for a language that is not available here";

/// Runs a solution as POST /run does, with the limits of the RUN_* variables.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunCommand {
    /// The language, as listed by `cofferdam langs`
    #[arg(long, value_name = "SLUG")]
    lang: String,
    /// The solution; `-` for stdin
    #[arg(value_name = "FILE")]
    solution: PathBuf,
    /// The checker, for languages that require one
    #[arg(long, value_name = "FILE")]
    checker: Option<PathBuf>,
    /// The contents of asserts.json [default: the workspace's own file]
    #[arg(long, value_name = "FILE")]
    asserts: Option<PathBuf>,
    /// Wall-clock time, such as 500ms or 30s [default: 30s]
    #[arg(long, value_name = "D", value_parser = value_parsers::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    options: SandboxOptions,
    /// Print one JSON object at the end instead of the output as it arrives
    #[arg(long)]
    json: bool,
}

impl RunCommand {
    /// Runs the check; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        let Self { lang, solution, checker, asserts, timeout, options, json } = self;
        let config = options.config()?;
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
        let resolved = ResolvedConfig::resolve(&config)?;
        resolved.require_makefile()?;
        check_options(&resolved, &request)?;
        let foreground = Foreground::begin()?;
        let checked = |sink| check(&config, resolved, request, &foreground, sink);
        let (report, broken) = if json {
            let report = checked(None);
            let broken =
                report.as_ref().map_or(Ok(None), |report| print_json(&report.run, &foreground))?;
            (report, broken)
        } else {
            let (report, broken) = foreground.pass_through(|sink| checked(Some(sink)))?;
            if let Ok(CheckReport { last_words: Some(words), .. }) = &report {
                // A failure to write to stderr cannot be reported.
                let _ = io::stderr().write_all(words.as_bytes());
            }
            (report, broken)
        };
        foreground.exit_code(report.map(|report| report.run.outcome), broken)
    }
}

fn check(
    config: &Config,
    resolved: ResolvedConfig,
    request: CheckRequest,
    foreground: &Foreground,
    sink: Option<Box<dyn OutputSink>>,
) -> Result<CheckReport, Failure> {
    let checking = resolved.open(config.isolation, Vec::new())?;
    let admitted = checking.single_runner(config)?.admit(request)?;
    Ok(admitted.run(&foreground.watch(), sink)?)
}

fn print_json(
    report: &RunReport,
    foreground: &Foreground,
) -> Result<Option<BrokenStream>, Failure> {
    let text = serde_json::to_string(&CheckReportJson::of(report))
        .map_err(|error| Failure::Write { what: "the result", source: error.into() })?;
    foreground.print(&(text + "\n"))
}

/// Reports errors of the request as errors of the options.
fn check_options(resolved: &ResolvedConfig, request: &CheckRequest) -> Result<(), Failure> {
    let slug = &request.lang_slug;
    let language = resolved.language(slug).ok_or_else(|| {
        Failure::option("--lang", format!("{slug:?} is not supported; see `cofferdam langs`"))
    })?;
    match (&language.checker, &request.checker_text) {
        (Some(_), None) => Err(Failure::option("--checker", format!("{slug} requires a checker"))),
        _ => Ok(()),
    }
}

/// Reads the text in `path`, or stdin for `-`; at most `bytes_max` bytes.
fn read_text(name: &str, path: &Path, bytes_max: Option<u64>) -> Result<String, Failure> {
    let fault = |words: &str| Failure::option(name, format!("{}: {words}", path.display()));
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let bytes = read_input(path, bytes_max).map_err(|error| fault(&error_words(&error)))?;
    if u64::try_from(bytes.len()).is_ok_and(|count| count > bytes_max) {
        return Err(fault(&format!("more than RUN_INPUT_MAX, which is {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| fault("not UTF-8; want a text file"))
}
