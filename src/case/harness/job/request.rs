//! The request of a harness of kind `job`, and what it may reach.

use std::time::Duration;

use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::case::harness::end::HarnessError;
use crate::case::harness::network::{HarnessTerms, with_values};
use crate::config::{EgressConfig, NetworkConfig};
use crate::egress::{AllowList, ServiceEgress};
use cofferdam_core::job::{Network, ValidRequest, parse_request};

/// The path of the workspace in a request without one. Nothing is read there.
const WORKSPACE: &str = "/workspace";

/// A job over the files of a Cell: a request of agent jobs, whose workspace is the sandbox.
#[derive(Debug, Clone)]
pub struct InlineJob {
    request: ValidRequest,
    network: NetworkConfig,
    service: ServiceEgress,
}

impl InlineJob {
    /// Reads the request of a harness. `variables` has the values of those that its secrets name.
    ///
    /// # Errors
    /// The first wrong field, or a variable that is not set.
    pub fn read(
        request: &Value,
        terms: &HarnessTerms,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, HarnessError> {
        let mut whole = request.clone();
        if let Some(object) = whole.as_object_mut() {
            let workspace = json!({"source": "local_path", "path": WORKSPACE});
            object.insert("workspace".to_owned(), workspace);
        }
        if let Some(network) = whole.pointer_mut("/policy/network") {
            with_values(network, variables)?;
        }
        let text = Zeroizing::new(whole.to_string());
        let request = parse_request(text.as_bytes())
            .map_err(|error| HarnessError::failed(error.into_error().message))?;
        let asked = match &request.policy.network {
            Network::Allow(network) => network.hosts(),
            Network::None | Network::Host => Vec::new(),
        };
        let hosts = AllowList::parse(&asked)
            .map_err(|error| HarnessError::failed(format!("policy.network: {error}")))?;
        let egress = terms.with_hosts_of_case(&asked);
        let shared = EgressConfig {
            bytes_max: egress.bytes_max,
            roots: egress.roots,
            log_paths: egress.log_paths,
        };
        let network = NetworkConfig { hosts, private_hosts: egress.private_hosts, shared };
        let request = request.of_token(&terms.token);
        Ok(Self { request, network, service: egress.service })
    }

    /// The request, with no more time than `time`.
    ///
    /// # Errors
    /// None for a request that was valid.
    pub fn within(&self, time: Duration) -> Result<ValidRequest, HarnessError> {
        let mut request = (*self.request).clone();
        let left_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        request.limits.timeout_ms = request.limits.timeout_ms.min(left_ms);
        let valid = ValidRequest::try_from(request);
        let valid = valid.map_err(|error| HarnessError::failed(error.message))?;
        Ok(valid.of_token(self.request.token()))
    }

    /// What the program may ask to reach: all that the request names.
    pub fn network(&self) -> &NetworkConfig {
        &self.network
    }

    /// What it has in common with all others of the service.
    pub fn service(&self) -> &ServiceEgress {
        &self.service
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &Value) -> Result<InlineJob, String> {
        let variables = |name: &str| (name == "KEY").then(|| "value-of-the-variable".to_owned());
        InlineJob::read(request, &HarnessTerms::default(), &variables)
            .map_err(|error| error.message)
    }

    #[test]
    fn a_request_has_its_own_time_or_that_of_the_step() {
        let job = read(&json!({"command": {"argv": ["true"]}})).unwrap();
        for (left_ms, wanted) in [(60_000, 30_000), (1_000, 1_000), (0, 1)] {
            let request = job.within(Duration::from_millis(left_ms)).unwrap();
            assert_eq!(request.limits.timeout_ms, wanted);
        }
    }

    #[test]
    fn a_secret_of_the_request_is_a_variable_of_the_caller() {
        let request = |name: &str| {
            json!({
                "command": {"argv": ["true"]},
                "policy": {"network": {
                    "allow": ["a.example"],
                    "secrets": {"k": {"value": {"env": name}, "hosts": ["a.example"]}},
                }},
            })
        };
        let job = read(&request("KEY")).unwrap();
        assert_eq!(job.network().hosts.entries(), ["a.example"]);
        assert!(!format!("{job:?}").contains("value-of-the-variable"));
        assert_eq!(read(&request("GONE")).unwrap_err(), "the variable GONE is not set");
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (request, path) in [
            (json!({"command": {"argv": []}}), "command.argv"),
            (json!({"command": {"argv": ["a"], "cwd": ".."}}), "command.cwd"),
            (json!({"command": {"argv": ["a"]}, "limits": {"timeout_ms": 0}}), "limits.timeout_ms"),
        ] {
            let fault = read(&request).unwrap_err();
            assert!(fault.starts_with(path), "{fault}");
        }
    }
}
