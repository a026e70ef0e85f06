//! The harness of a Cell, by its name in the matrix.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::call::Harness;
use super::command::CommandHarness;
use super::denials::CaseDenial;
use super::end::HarnessError;
use super::job::{InlineJob, InlineJobs, JobHarness};
use super::network::{AgentReach, HarnessTerms, SECRET_DENIED};
use super::nop::{NopHarness, UndefinedAgent};
use super::openai::{OpenaiHarness, OpenaiSettings};
use super::oracle::OracleCommands;
use super::patch::PatchHarness;
use crate::case::file::{Case, CaseHarness, CaseOracle, HarnessKind};
use crate::egress::EgressGrant;

/// How long a harness may work that says nothing of it.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1800);

/// What harnesses are made with.
#[derive(Clone, Copy)]
pub struct HarnessSetup<'a> {
    /// The directory of the Case.
    pub directory: &'a Path,
    /// What holds for their networks.
    pub terms: &'a HarnessTerms,
    /// The values of the variables that the Case may name.
    pub variables: &'a dyn Fn(&str) -> Option<String>,
    /// What runs jobs over the Cell, if anything does.
    pub jobs: Option<&'a Arc<dyn InlineJobs>>,
}

impl fmt::Debug for HarnessSetup<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("HarnessSetup");
        shown.field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// A harness, and what its step is bounded by.
#[derive(Debug)]
pub struct ChosenHarness {
    /// The harness.
    pub harness: Box<dyn Harness>,
    /// How long it may work.
    pub timeout: Duration,
    /// What its programs may reach.
    pub egress: Option<EgressGrant>,
}

impl ChosenHarness {
    /// `harness` with the time of those that say nothing of it, and without a network.
    pub fn without_network(harness: impl Harness + 'static) -> Self {
        Self { harness: Box::new(harness), timeout: TIMEOUT_DEFAULT, egress: None }
    }

    /// The harness that `case` has under `name`.
    ///
    /// # Errors
    /// A variable that it names is not set, or it may not use a secret or host that it names.
    pub fn find(name: &str, case: &Case, setup: HarnessSetup<'_>) -> Result<Self, HarnessError> {
        if let Some(defined) = case.harnesses.get(name) {
            return Self::make(defined, setup);
        }
        Ok(match (name, &case.oracle) {
            ("nop", _) => Self::without_network(NopHarness),
            ("oracle", Some(CaseOracle::Patch(patch))) => {
                Self::without_network(PatchHarness { patch: setup.directory.join(patch) })
            }
            ("oracle", Some(CaseOracle::Run(commands))) => {
                Self::without_network(OracleCommands { commands: commands.clone() })
            }
            _ => Self::without_network(UndefinedAgent { name: name.to_owned() }),
        })
    }

    /// The harnesses of `case` that name a secret of the service which they may not use.
    pub fn secret_denials(case: &Case, setup: HarnessSetup<'_>) -> Vec<CaseDenial> {
        let denial = |(name, defined): (&String, &CaseHarness)| {
            let error = Self::make(defined, setup).err()?;
            let words = error.message.strip_prefix(SECRET_DENIED)?.trim_start_matches(": ");
            Some(CaseDenial {
                path: format!("harnesses.{name}"),
                code: SECRET_DENIED,
                message: words.to_owned(),
            })
        };
        case.harnesses.iter().filter_map(denial).collect()
    }

    fn make(defined: &CaseHarness, setup: HarnessSetup<'_>) -> Result<Self, HarnessError> {
        let reach = AgentReach::read(&defined.network, setup.terms, setup.variables)?;
        let egress = reach.grant();
        let env = defined.env.clone();
        let harness: Box<dyn Harness> = match &defined.kind {
            Some(HarnessKind::Command { argv }) => {
                Box::new(CommandHarness { argv: argv.clone(), env })
            }
            Some(HarnessKind::Replay { patch }) => {
                Box::new(PatchHarness { patch: setup.directory.join(patch) })
            }
            Some(HarnessKind::Job { request }) => {
                let job = InlineJob::read(request, setup.terms, setup.variables)?;
                Box::new(JobHarness { job, jobs: setup.jobs.cloned() })
            }
            Some(kind @ HarnessKind::Openai { .. }) => {
                let settings = OpenaiSettings::read(kind, env, setup.terms, setup.variables)?;
                Box::new(OpenaiHarness::new(settings, &reach))
            }
            None => return Err(HarnessError::failed("the harness has no kind")),
        };
        let timeout = Duration::try_from_secs_f64(defined.timeout_s).unwrap_or(Duration::MAX);
        Ok(Self { harness, timeout, egress })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::file::load_case;

    #[test]
    fn a_name_of_the_matrix_has_its_harness_and_time() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.patch"), "").unwrap();
        let yaml = "
id: a
task: {prompt: p}
oracle: {patch: a.patch}
harnesses:
  mine: {kind: command, argv: [agent], egress: [a.example], timeout_s: 1.5}
  again: {kind: replay, patch: a.patch}
  chat: {kind: openai, base_url: 'http://127.0.0.1:1/v1'}
  sealed: {kind: job, command: {argv: [agent]}}
matrix: {harnesses: [nop, oracle, mine, again, chat, sealed, aider], models: [m]}
";
        std::fs::write(place.path().join("case.yaml"), yaml).unwrap();
        let case = load_case(place.path()).unwrap().case;
        let terms = HarnessTerms::default();
        let setup = HarnessSetup {
            directory: place.path(),
            terms: &terms,
            variables: &|_| None,
            jobs: None,
        };
        for (name, kind, timeout_ms, has_egress) in [
            ("nop", "NopHarness", 1_800_000, false),
            ("oracle", "PatchHarness", 1_800_000, false),
            ("mine", "CommandHarness", 1_500, true),
            ("again", "PatchHarness", 1_800_000, false),
            ("chat", "OpenaiHarness", 1_800_000, false),
            ("sealed", "JobHarness", 1_800_000, false),
            ("aider", "UndefinedAgent", 1_800_000, false),
        ] {
            let found = ChosenHarness::find(name, &case, setup).unwrap();
            assert!(format!("{:?}", found.harness).starts_with(kind), "{name}: {found:?}");
            let bounds = (found.timeout.as_millis(), found.egress.is_some());
            assert_eq!(bounds, (timeout_ms, has_egress), "{name}");
        }
    }
}
