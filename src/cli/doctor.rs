//! `cofferdam doctor`: what this host can enforce.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::boxes::PROFILE;
use super::failure::Failure;
use super::print;
use crate::sandbox::probe::{self, Control, Report};
use crate::sandbox::profile::Profile;
use crate::spec::SetupFailure;

const EXAMPLES: &str = "\
Examples:
  cofferdam doctor
  cofferdam doctor --json
  cofferdam doctor --strict && ISOLATION=strict cofferdam serve

Exit codes: 0; 1 with --strict unless every control is enforced";

/// Not everything is enforced, and `--strict` asked for it.
const NOT_WHOLE: u8 = 1;

/// Tries every control of a box and says which this host enforces.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 unless every control is enforced
    #[arg(long)]
    strict: bool,
}

/// What `--json` prints, keys in this order.
#[derive(Debug, Serialize)]
struct Told<'a> {
    controls: Vec<ToldControl<'a>>,
    environment: &'static str,
}

#[derive(Debug, Serialize)]
struct ToldControl<'a> {
    name: &'static str,
    status: &'static str,
    reason: &'a str,
    fix: &'a str,
}

impl Doctor {
    /// Tries everything and prints what came of it.
    pub fn run(self) -> Result<u8, Failure> {
        let profile = Profile::builtin(PROFILE)
            .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
        let report = probe::examine(&profile)?;
        let text = if self.json {
            let json = serde_json::to_string(&Told::of(&report));
            json.map_err(|error| Failure::Write { what: "the report", source: error.into() })?
                + "\n"
        } else {
            lines(&report)
        };
        print(&text)?;
        Ok(if self.strict && !report.is_whole() { NOT_WHOLE } else { 0 })
    }
}

impl<'a> Told<'a> {
    fn of(report: &'a Report) -> Self {
        let told = |control: &'a Control| ToldControl {
            name: control.name,
            status: control.status.word(),
            reason: &control.reason,
            fix: &control.fix,
        };
        Self {
            controls: report.controls.iter().map(told).collect(),
            environment: report.environment.word(),
        }
    }
}

/// The report for a reader: a control a line, aligned, and what would mend it.
fn lines(report: &Report) -> String {
    let width = report.controls.iter().map(|control| control.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Control { name, status, reason, fix } in &report.controls {
        let fix = if fix.is_empty() { String::new() } else { format!("; fix: {fix}") };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name:width$}  {:8}  {reason}{fix}", status.word());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::probe::Status;
    use crate::sandbox::remedy::Environment;

    fn report() -> Report {
        let control = |name, status, reason: &str, fix: &str| Control {
            name,
            status,
            reason: reason.to_owned(),
            fix: fix.to_owned(),
        };
        Report {
            controls: vec![
                control("seccomp", Status::Enforced, "tried", ""),
                control("cpu", Status::Missing, "no controller", "mount one"),
            ],
            environment: Environment::Docker,
        }
    }

    #[test]
    fn json_has_the_keys_of_the_contract_in_their_order() {
        assert_eq!(
            serde_json::to_string(&Told::of(&report())).unwrap(),
            r#"{"controls":[{"name":"seccomp","status":"enforced","reason":"tried","fix":""},{"name":"cpu","status":"missing","reason":"no controller","fix":"mount one"}],"environment":"docker"}"#
        );
    }

    #[test]
    fn a_control_is_one_line_with_its_reason_and_its_fix() {
        let want = "seccomp  enforced  tried\ncpu      missing   no controller; fix: mount one\n";
        assert_eq!(lines(&report()), want);
    }
}
