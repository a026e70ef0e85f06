//! Runs the Cells of a service on this host.

use super::runners::{CaseRunners, RunnerRequest};
use crate::case::harness::{CaseDenial, ChosenHarness, HarnessSetup, HarnessTerms};
use crate::case::run::{CellRunner, CellWarning};
use crate::case::trial::{RunHostRequest, TrialHosts, TrialRunner, inputs_digest};
use cofferdam_core::sync::cancel::CancelToken;

/// Makes runners of Cells on this host.
#[derive(Debug)]
pub struct TrialRunners {
    hosts: TrialHosts,
}

impl TrialRunners {
    /// By `hosts`, whose variables are those that a Case of a client may see, and which trust no Case.
    pub fn new(hosts: TrialHosts) -> Self {
        Self { hosts }
    }
}

impl CaseRunners for TrialRunners {
    fn denials(&self, request: &RunnerRequest<'_>) -> Vec<CaseDenial> {
        let settings = self.hosts.settings();
        let terms = HarnessTerms {
            egress: settings.egress.clone(),
            token: request.owner.to_owned(),
            trusts_case: settings.trusts_case,
        };
        let setup = HarnessSetup {
            directory: request.case_path.parent().unwrap_or(request.case_path),
            terms: &terms,
            variables: &|name| settings.variables.get(name).cloned(),
            jobs: None,
        };
        ChosenHarness::secret_denials(&request.checked.case, setup)
    }

    fn source_digest(
        &self,
        request: &RunnerRequest<'_>,
        cancel: &CancelToken,
    ) -> Result<String, String> {
        let left_out = self.hosts.left_out(request.case_path);
        inputs_digest(&request.checked.case, request.case_path, &left_out, cancel)
    }

    fn cell_runner(&self, request: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, String> {
        let host = self.hosts.host(&RunHostRequest {
            case: &request.checked.case,
            case_path: request.case_path,
            executor: request.executor,
            keep: false,
            owner: request.owner,
        });
        let host = host.map_err(|failure| failure.to_string())?;
        let warnings = request.checked.warnings.iter().map(CellWarning::of).collect();
        Ok(Box::new(TrialRunner::new(host, warnings)))
    }
}
