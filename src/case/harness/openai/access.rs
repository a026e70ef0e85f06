//! Whether the supervisor may send a request to the endpoint of a model, by the network of the harness.

use std::sync::Arc;

use ureq::http::HeaderMap;

use crate::case::harness::network::{AgentReach, HarnessTerms};
use crate::egress::hosts::literal::AskedHost;
use crate::egress::rules::{HostRoute, LiveNetwork, RequestPlan, RuleRefusal, RuledHead};
use crate::egress::{EgressReason, EgressTerms};
use crate::evaluation::web_url::WebUrl;

/// What the supervisor's own requests obey.
#[derive(Debug, Clone)]
pub(super) struct ModelAccess {
    /// What holds for addresses.
    pub(super) terms: EgressTerms,
    /// The network of the harness.
    network: Arc<LiveNetwork>,
    /// Whether the network has to name the endpoint.
    needs_entry: bool,
}

impl ModelAccess {
    /// Those to `entry`, the host and port of the endpoint, of a harness that reaches `reach`.
    pub(super) fn new(reach: &AgentReach, terms: &HarnessTerms, entry: String) -> Self {
        let hosts = [reach.terms.private_hosts.entries(), &[entry]].concat();
        Self {
            terms: terms.with_hosts_of_case(&hosts),
            network: Arc::clone(&reach.network.live),
            needs_entry: !terms.trusts_case,
        }
    }

    /// Decides over a POST to `url` with `headers`. A plan replaces them, where rules decide.
    pub(super) fn judge(
        &self,
        url: &WebUrl,
        headers: &HeaderMap,
    ) -> Result<Option<RequestPlan>, String> {
        let refused = |reason: EgressReason| {
            format!("{}:{} may not be reached: {}", url.host(), url.port(), reason.word())
        };
        let host = AskedHost::parse(url.host()).ok_or_else(|| refused(EgressReason::BadRequest))?;
        let rules = self.network.current();
        let is_http = !is_tls(url);
        match rules.route(&host, url.port()) {
            HostRoute::Unlisted if self.needs_entry => Err(refused(EgressReason::NotListed)),
            HostRoute::Listed | HostRoute::Unlisted => Ok(None),
            HostRoute::Ruled { is_plain } if is_plain != is_http => {
                Err(refused(EgressReason::BadRequest))
            }
            HostRoute::Ruled { .. } => {
                let target = target(url);
                let head = RuledHead { method: "POST", target, headers, is_websocket: false };
                let plan = rules.decide(&host, url.port(), &head).plan;
                plan.map(Some).map_err(|refusal| refused(reason_of(refusal)))
            }
        }
    }
}

fn reason_of(refusal: RuleRefusal) -> EgressReason {
    match refusal {
        RuleRefusal::NoRule => EgressReason::NoRule,
        RuleRefusal::RequestsMax => EgressReason::RequestsMax,
        RuleRefusal::SecretHost => EgressReason::SecretHost,
        RuleRefusal::SecretMissing => EgressReason::SecretMissing,
        RuleRefusal::BadRequest => EgressReason::BadRequest,
        RuleRefusal::RuleDenied | RuleRefusal::WebSocket => EgressReason::RuleDenied,
    }
}

/// Whether requests to `url` go by TLS.
pub(super) fn is_tls(url: &WebUrl) -> bool {
    url.as_str().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// The path and query of `url`.
fn target(url: &WebUrl) -> &str {
    let behind = url.as_str().split_once("://").map_or("", |(_, behind)| behind);
    behind.find('/').and_then(|at| behind.get(at..)).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::case::file::HarnessNetwork;

    #[test]
    fn requests_to_the_endpoint_obey_the_network_of_the_harness() {
        let egress = |hosts: &[&str]| {
            HarnessNetwork::Egress(hosts.iter().map(ToString::to_string).collect())
        };
        let ruled = |path: &str| {
            HarnessNetwork::Object(json!({"rules": {"api.example": [{"path": path}]}}))
        };
        let url = WebUrl::parse("https://api.example/v1/chat/completions").unwrap();
        for (network, trusts_case, wanted) in [
            (egress(&[]), true, None),
            (egress(&[]), false, Some("not_listed")),
            (egress(&["api.example"]), false, None),
            (egress(&["api.example:80"]), false, Some("not_listed")),
            (ruled("/v1/*"), false, None),
            (ruled("/v1/*"), true, None),
            (ruled("/v2/*"), true, Some("no_rule")),
        ] {
            let terms = HarnessTerms { trusts_case, ..HarnessTerms::default() };
            let reach = AgentReach::read(&network, &terms, &|_| None).unwrap();
            let access = ModelAccess::new(&reach, &terms, "api.example:443".to_owned());
            let judged = access.judge(&url, &HeaderMap::new()).map(drop).err();
            let wanted =
                wanted.map(|reason| format!("api.example:443 may not be reached: {reason}"));
            assert_eq!(judged, wanted, "{network:?}");
        }
    }
}
