//! `cofferdam case validate`: reports every error of a case file, and proves a Case.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::prove::{Proof, prove};
use super::run::{CellRunnerSource, LoadedCase};
use crate::case::file::{CaseCode, CaseFinding, CaseReport, load_case};
use crate::cli::failure::{Failure, USAGE};
use crate::cli::foreground::Foreground;
use crate::cli::stdio::print;

const AFTER_HELP: &str = "\
--prove tries the harnesses nop and oracle once each. Nothing is left of their Cells.
Exit codes: 0 the Case can be run, 2 it cannot; with --prove 1 unless nop fails and oracle passes,
  2 also for a Case without an oracle, 130 or 143 ended by a signal";
/// The exit code of a Case that is not what it seems.
const NOT_PROVED: u8 = 1;

/// Prints a report.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CaseValidateCommand {
    /// The case file, or a directory with case.yaml
    #[arg(value_name = "CASE")]
    case: PathBuf,
    /// Also try nop, which has to fail, and oracle, which has to pass
    #[arg(long)]
    prove: bool,
    /// What runs their commands [default: container if the Case has one, else sandboxed]
    #[arg(long, value_name = "E", requires = "prove", value_parser = ["sandboxed", "local", "container"])]
    executor: Option<String>,
}

/// The report on a Case that was tried.
#[derive(Debug, Serialize)]
struct ProvedReport {
    #[serde(flatten)]
    report: CaseReport,
    proved: Proof,
}

impl CaseValidateCommand {
    /// Prints the report; returns the exit code of the contract.
    pub fn run(self, source: &dyn CellRunnerSource) -> Result<u8, Failure> {
        let loaded = load_case(&self.case);
        let lacks_oracle = loaded.as_ref().is_ok_and(|checked| checked.case.oracle.is_none());
        let report = match CaseReport::of(loaded) {
            CaseReport::Valid { warnings, .. } if self.prove && lacks_oracle => {
                without_oracle(warnings)
            }
            report => report,
        };
        if let (CaseReport::Valid { .. }, true) = (&report, self.prove) {
            return self.proved(report, source);
        }
        print_json(&report)?;
        Ok(if matches!(report, CaseReport::Valid { .. }) { 0 } else { USAGE })
    }

    fn proved(self, report: CaseReport, source: &dyn CellRunnerSource) -> Result<u8, Failure> {
        let foreground = Foreground::begin()?;
        let loaded = LoadedCase::read(&self.case)?;
        let proved = prove(&loaded, self.executor, source, &foreground.watch().cancel)?;
        let holds = proved.holds();
        print_json(&ProvedReport { report, proved })?;
        let by_signal = foreground.signal_code();
        Ok(by_signal.unwrap_or(if holds { 0 } else { NOT_PROVED }))
    }
}

/// The report on a Case that nothing solves.
fn without_oracle(warnings: Vec<CaseFinding>) -> CaseReport {
    let error = CaseFinding {
        path: "oracle".to_owned(),
        code: CaseCode::Missing,
        message: "'oracle' is required: without it nothing shows that the Case can be solved"
            .to_owned(),
    };
    CaseReport::Invalid { valid: false, errors: vec![error], warnings }
}

fn print_json(report: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string(report)
        .map_err(|error| Failure::Write { what: "the report", source: error.into() })?;
    print(&format!("{json}\n"))
}
