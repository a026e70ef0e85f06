//! `cofferdam doctor`: what this host can enforce.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::failure::{Failure, SANDBOX};
use super::stdio::print;
use crate::check::status::{ControlStatus, Examined};
use crate::cli::options::sandbox_options::{PROFILE, prestart_bytes_max};
use crate::config::{Config, Overrides};
use crate::evaluation::trees::session_base::check_base;
use cofferdam_core::{Enforced, SetupFailure};
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost};
use cofferdam_sandbox::host::probe;
use cofferdam_sandbox::host::probe::{ProbeReport, ProbedControl};
use cofferdam_seccomp::profile::Profile;

const EXAMPLES: &str = "\
Examples:
  cofferdam doctor
  cofferdam doctor --json
  cofferdam doctor --strict && ISOLATION=strict cofferdam serve

What workspaces can have is listed after the controls. It is no isolation: --strict does not ask for it, and
images are tried where ENGINE_STORE_DIR is. The row after them is about the files of evaluations: whether
WORKSPACE_BASE can be used, and whether they lie on disk or in memory. The last is whether runtimes are started
ahead of runs, and how many.
Exit codes: 0; 1 with --strict unless every control is enforced; 125 if no sandbox can be created
and a service would not start";

/// `--strict` is given, and a control is not enforced.
const NOT_WHOLE: u8 = 1;
/// What to change where evaluations cannot use their directory.
const BASE_FIX: &str =
    "set WORKSPACE_BASE to a directory of this user with mode 0700, or to one that can be made";
/// The longest line of the text report, characters.
const LINE_CHARS_MAX: usize = 96;

/// Tries every control of a sandbox and reports which ones this host enforces.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorCommand {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 unless every control is enforced
    #[arg(long)]
    strict: bool,
}

/// The output of `--json`, keys in this order.
#[derive(Debug, Serialize)]
struct DoctorJson {
    controls: Vec<ControlStatus>,
    workspaces: Vec<ControlStatus>,
    environment: &'static str,
}

impl DoctorCommand {
    /// Tries every control and prints the report.
    pub fn run(self) -> Result<u8, Failure> {
        let mut report = examine()?;
        let opened = open_sandbox();
        let is_counted = opened.as_ref().is_ok_and(Enforced::counts_usage);
        report.add_whole_sandbox(opened.map(drop));
        // A problem of the configuration is for the service to tell.
        let (config, _) = Config::read(std::env::vars_os(), &Overrides::default());
        report.add_workspaces(&engine_dir(&config));
        let base = config.evaluations.workspace_base.as_path();
        let usable = check_base(base).map(|()| base);
        report.add_evaluation_files(usable.map_err(|error| (error.to_string(), BASE_FIX)));
        report.add_runtimes_ahead(runtimes_ahead(&config, is_counted));
        let text = if self.json {
            let Examined { controls, environment } = (&report).into();
            let workspaces = report.workspaces.iter().map(Into::into).collect();
            let json = serde_json::to_string(&DoctorJson { controls, workspaces, environment });
            json.map_err(|error| Failure::Write { what: "the report", source: error.into() })?
                + "\n"
        } else {
            lines(&report)
        };
        print(&text)?;
        Ok(exit_code(&report, self.strict))
    }
}

/// The result of trying each control; if the trials cannot run, a report that says why.
pub fn examine() -> Result<ProbeReport, SetupFailure> {
    let profile = profile()?;
    Ok(probe::examine(&profile).unwrap_or_else(|failure| ProbeReport::untried(&failure)))
}

/// How many runtimes a service with `config` starts ahead of their runs, or why none.
fn runtimes_ahead(config: &Config, is_counted: bool) -> Result<String, String> {
    match config.prestarted_max {
        _ if config.standby_max == 0 => Err("STANDBY_MAX=0".to_owned()),
        0 => Err("PRESTART=off, or no host uid is left for one".to_owned()),
        _ if !is_counted => {
            Err("the memory or the CPU time of sandboxes is not counted".to_owned())
        }
        runtimes_max => {
            let mib_max = prestart_bytes_max(config) >> 20;
            Ok(format!("up to {runtimes_max}, with {mib_max} MiB of memory together"))
        }
    }
}

/// Opens a sandbox as a service does when it starts, and tells what is enforced.
fn open_sandbox() -> Result<Enforced, SetupFailure> {
    let config = SandboxConfig {
        profile: profile()?,
        root: RootSource::Host,
        private: Vec::new(),
        strict: false,
    };
    SandboxHost::open(config).map(|host| host.enforced())
}

/// Where a service's engine would keep images.
fn engine_dir(config: &Config) -> PathBuf {
    let directory = &config.engine.store_dir;
    std::path::absolute(directory).unwrap_or_else(|_| directory.clone())
}

fn profile() -> Result<Profile, SetupFailure> {
    builtin_profile(PROFILE).map_err(|error| SetupFailure::from_words("profile", error.to_string()))
}

fn exit_code(report: &ProbeReport, strict: bool) -> u8 {
    if strict && !report.is_whole() {
        NOT_WHOLE
    } else if report.makes_boxes() {
        0
    } else {
        SANDBOX
    }
}

/// The report as text: one line for each control, then the fixes for controls that are not
/// enforced, each fix once.
fn lines(report: &ProbeReport) -> String {
    let all = || report.controls.iter().chain(&report.workspaces);
    let width = all().map(|control| control.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut add_line = |ProbedControl { name, status, reason, .. }: &ProbedControl| {
        let start = format!("{name:width$}  {:8}  ", status.word());
        wrap(&mut text, &start, width + 12, reason);
    };
    report.controls.iter().for_each(&mut add_line);
    report.workspaces.iter().for_each(&mut add_line);
    let environment = report.host_kind.word();
    let fixes = fixes(all());
    if !fixes.is_empty() {
        text.push_str("\nto fix:\n");
    }
    for (fix, names) in fixes {
        wrap(&mut text, "  ", 2, &names.join(", "));
        wrap(&mut text, "    -> ", 7, fix);
    }
    let sum = match (report.makes_boxes(), report.is_whole()) {
        (_, true) => "every control is enforced",
        (true, false) => "sandboxes can be created, without the controls missing above",
        (false, false) => "no sandbox can be created: a service would not start",
    };
    // Writing to a String does not fail.
    let _ = writeln!(text, "\nenvironment: {environment}; {sum}");
    text
}

/// Each fix with the controls that it fixes, in the order of the controls.
fn fixes<'a>(controls: impl Iterator<Item = &'a ProbedControl>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut fixes: Vec<(&str, Vec<&str>)> = Vec::new();
    for ProbedControl { name, fix, .. } in controls.filter(|control| !control.fix.is_empty()) {
        match fixes.iter_mut().find(|(known, _)| *known == fix) {
            Some((_, names)) => names.push(name),
            None => fixes.push((fix, vec![name])),
        }
    }
    fixes
}

/// Appends `start` and `words`, wrapped; lines after the first are indented by `indent` columns.
fn wrap(text: &mut String, start: &str, indent: usize, words: &str) {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        let longer = line.chars().count() + 1 + word.chars().count();
        if !is_empty && longer > LINE_CHARS_MAX {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_sandbox::host::host_kind::HostKind;
    use cofferdam_sandbox::host::probe::Enforcement;

    fn report(whole_sandbox: Enforcement) -> ProbeReport {
        let control = |name, status, reason: &str, fix: &str| ProbedControl {
            name,
            status,
            reason: reason.to_owned(),
            fix: fix.to_owned(),
        };
        ProbeReport {
            controls: vec![
                control("seccomp", Enforcement::Enforced, "tried", ""),
                control("memory", Enforcement::Missing, &"no controller ".repeat(9), "mount one"),
                control("cpu", Enforcement::Missing, "no controller", "mount one"),
                control("whole box", whole_sandbox, "tried", ""),
            ],
            workspaces: vec![control("disk", Enforcement::Missing, "no device", "add one")],
            host_kind: HostKind::Docker,
        }
    }

    #[test]
    fn json_has_the_keys_of_the_contract_in_their_order() {
        let Examined { mut controls, environment } = (&report(Enforcement::Enforced)).into();
        controls.remove(1);
        controls.pop();
        let workspaces = vec![(&report(Enforcement::Enforced).workspaces[0]).into()];
        assert_eq!(
            serde_json::to_string(&DoctorJson { controls, workspaces, environment }).unwrap(),
            r#"{"controls":[{"name":"seccomp","status":"enforced","reason":"tried","fix":""},{"name":"cpu","status":"missing","reason":"no controller","fix":"mount one"}],"workspaces":[{"name":"disk","status":"missing","reason":"no device","fix":"add one"}],"environment":"docker"}"#
        );
    }

    #[test]
    fn each_control_has_a_line_and_each_fix_is_listed_once() {
        let want = "\
seccomp    enforced  tried
memory     missing   no controller no controller no controller no controller no controller no
                     controller no controller no controller no controller
cpu        missing   no controller
whole box  enforced  tried
disk       missing   no device

to fix:
  memory, cpu
    -> mount one
  disk
    -> add one

environment: docker; sandboxes can be created, without the controls missing above
";
        assert_eq!(lines(&report(Enforcement::Enforced)), want);
    }

    #[test]
    fn a_host_that_cannot_create_a_sandbox_has_its_own_exit_code() {
        let mut whole = report(Enforcement::Enforced);
        whole.controls.retain(|control| control.status == Enforcement::Enforced);
        for (report, strict, code) in [
            (&whole, false, 0),
            (&whole, true, 0),
            (&report(Enforcement::Enforced), false, 0),
            (&report(Enforcement::Enforced), true, 1),
            (&report(Enforcement::Missing), false, 125),
            (&report(Enforcement::Missing), true, 1),
        ] {
            assert_eq!(exit_code(report, strict), code, "strict: {strict}");
        }
    }
}
