//! The body of `POST /evaluate`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::fields::{self, invalid, parse_body};
use super::network;
use crate::evaluation::request::{AgentLimitRule, EvaluationRequest};
use crate::evaluation::service::EvaluationsError;
use crate::http::evaluations::settings::EvaluationRequestBounds;
use cofferdam_core::NetworkObject;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvaluationBody {
    agent_code: Option<String>,
    patch: Option<String>,
    agent_language: Option<String>,
    task_url: String,
    task_sha256: Option<String>,
    timeout_secs: Option<u64>,
    agent_env: Option<BTreeMap<String, String>>,
    agent_hosts: Option<Vec<String>>,
    agent_network: Option<NetworkObject>,
    agent_install: Option<Vec<String>>,
    rootfs: Option<String>,
    on_agent_limit: Option<AgentLimitRule>,
    fresh: Option<bool>,
    labels: Option<BTreeMap<String, String>>,
}

/// Parses a request for one evaluation.
///
/// # Errors
/// The first field that is wrong.
pub fn parse_evaluation(
    body: &[u8],
    bounds: &EvaluationRequestBounds,
) -> Result<EvaluationRequest, EvaluationsError> {
    let read: EvaluationBody = parse_body(body)?;
    let (code, patch) = (read.agent_code, read.patch);
    let language = read.agent_language.as_deref();
    let work = fields::work("", code, patch, language, bounds.agent_code_bytes_max)?;
    let task = fields::task("", read.task_url, read.task_sha256)?;
    let timeout = read.timeout_secs.map(|secs| timeout(secs, bounds.agent_timeout)).transpose()?;
    let agent_env = read.agent_env.unwrap_or_default();
    fields::agent_env("", &agent_env)?;
    let agent_network = match (read.agent_hosts, read.agent_network) {
        (Some(_), Some(_)) => {
            return Err(invalid("agent_hosts", "agent_network is given too: only one may be"));
        }
        (Some(hosts), None) => Some(network::agent_hosts(hosts, &bounds.agent_hosts)?),
        (None, asked) => {
            let check = |asked| network::agent_network("agent_network", asked, &bounds.agent_hosts);
            asked.as_ref().map(check).transpose()?;
            asked
        }
    };
    let agent_install = read.agent_install.unwrap_or_default();
    fields::commands("agent_install", &agent_install)?;
    read.rootfs.as_deref().map(fields::rootfs).transpose()?;
    let labels = read.labels.unwrap_or_default();
    fields::labels(&labels)?;
    Ok(EvaluationRequest {
        task,
        work,
        timeout,
        agent_env,
        agent_network,
        agent_install,
        rootfs: read.rootfs,
        on_agent_limit: read.on_agent_limit.unwrap_or_default(),
        fresh: read.fresh.unwrap_or_default(),
        labels,
    })
}

fn timeout(secs: u64, longest: Duration) -> Result<Duration, EvaluationsError> {
    if (1..=longest.as_secs()).contains(&secs) {
        return Ok(Duration::from_secs(secs));
    }
    Err(invalid("timeout_secs", format!("want 1 to {}", longest.as_secs())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::egress::AllowList;
    use crate::evaluation::request::AgentLanguage;
    use crate::evaluation::request::{EvaluatedWork, TaskPlace};

    fn parse(change: &Value) -> Result<EvaluationRequest, EvaluationsError> {
        let hosts = ["api.example".to_owned(), "*.models.example".to_owned()];
        let bounds = EvaluationRequestBounds {
            agent_code_bytes_max: 10,
            agent_timeout: Duration::from_secs(600),
            agent_hosts: AllowList::parse(&hosts).unwrap(),
            batch_max: 4,
        };
        let mut body = json!({ "agent_code": "x", "task_url": "https://h/t.tar.gz" });
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        parse_evaluation(body.to_string().as_bytes(), &bounds)
    }

    #[test]
    fn an_evaluation_has_the_defaults_of_the_contract() {
        let read = parse(&json!({})).unwrap();
        let (code, language) = (b"x".to_vec(), AgentLanguage::Python);
        assert_eq!(read.work, EvaluatedWork::Agent { code, language });
        let url = "https://h/t.tar.gz".to_owned();
        assert_eq!(read.task, TaskPlace::Url { url, sha256: None });
        assert_eq!((read.timeout, read.on_agent_limit), (None, AgentLimitRule::Stop));
        assert!(read.agent_env.is_empty() && read.agent_network.is_none() && !read.fresh);
        assert!(read.agent_install.is_empty() && read.rootfs.is_none() && read.labels.is_empty());
    }

    #[test]
    fn every_field_of_an_evaluation_is_read() {
        let read = parse(&json!({
            "agent_code": "é23456789", "agent_language": "NODE", "timeout_secs": 600,
            "task_sha256": "AB".repeat(32), "agent_env": {"A": "1", "_b2": ""},
            "agent_hosts": ["a.models.example"], "agent_install": ["pip install x"],
            "rootfs": "debian-12", "on_agent_limit": "grade", "fresh": true,
            "labels": {"run": "7"},
        }))
        .unwrap();
        let (code, language) = ("é23456789".into(), AgentLanguage::Javascript);
        assert_eq!(read.work, EvaluatedWork::Agent { code, language });
        let sha256 =
            matches!(&read.task, TaskPlace::Url { sha256: Some(it), .. } if *it == "ab".repeat(32));
        assert!(sha256 && read.fresh && read.on_agent_limit == AgentLimitRule::Grade);
        assert_eq!(read.timeout, Some(Duration::from_secs(600)));
        assert_eq!(read.agent_network.unwrap().allow, ["a.models.example"]);
        assert_eq!((read.agent_env.len(), read.agent_install.len()), (2, 1));
        assert_eq!((read.rootfs.as_deref(), read.labels["run"].as_str()), (Some("debian-12"), "7"));
        let patch = parse(&json!({ "agent_code": null, "patch": "diff" })).unwrap();
        assert_eq!(patch.work, EvaluatedWork::Patch(b"diff".to_vec()));
    }

    #[test]
    fn a_wrong_field_is_refused_by_its_name() {
        let env = |name: &str| json!({ "agent_env": { name: "1" } });
        let many = |count: usize| -> Value {
            (0..count).map(|index| (format!("N{index}"), json!("1"))).collect()
        };
        let long_url = format!("https://h/{}", "a".repeat(2048));
        for (change, field) in [
            (json!({ "other": 1 }), "other"),
            (json!({ "agent_code": 7 }), "agent_code"),
            (json!({ "agent_code": "" }), "agent_code"),
            (json!({ "agent_code": "éééééx" }), "agent_code"),
            (json!({ "agent_code": null }), "agent_code"),
            (json!({ "patch": "" }), "patch"),
            (json!({ "task_url": null }), "task_url"),
            (json!({ "task_url": "ftp://h/x" }), "task_url"),
            (json!({ "task_url": "https://u@h/x" }), "task_url"),
            (json!({ "task_url": long_url }), "task_url"),
            (json!({ "agent_language": "cobol" }), "agent_language"),
            (json!({ "task_sha256": "ab" }), "task_sha256"),
            (json!({ "task_sha256": "zz".repeat(32) }), "task_sha256"),
            (json!({ "timeout_secs": 0 }), "timeout_secs"),
            (json!({ "timeout_secs": 601 }), "timeout_secs"),
            (json!({ "timeout_secs": 1.5 }), "timeout_secs"),
            (json!({ "timeout_secs": "1" }), "timeout_secs"),
            (json!({ "agent_env": many(65) }), "agent_env"),
            (json!({ "agent_env": {"A": 1} }), "agent_env.A"),
            (json!({ "agent_env": {"A": "\0"} }), "agent_env.A"),
            (env("1A"), "agent_env.1A"),
            (env(""), "agent_env."),
            (env("A-B"), "agent_env.A-B"),
            (env("É"), "agent_env.É"),
            (env("PATH"), "agent_env.PATH"),
            (env("CARGO_HOME"), "agent_env.CARGO_HOME"),
            (env("https_proxy"), "agent_env.https_proxy"),
            (env("TASK_PROMPT"), "agent_env.TASK_PROMPT"),
            (env("LD_PRELOAD"), "agent_env.LD_PRELOAD"),
            (json!({ "agent_hosts": ["other.example"] }), "agent_hosts"),
            (json!({ "agent_hosts": ["api.example:80"] }), "agent_hosts"),
            (json!({ "agent_hosts": ["api.example", "*"] }), "agent_hosts[1]"),
            (json!({ "agent_hosts": [], "agent_network": {} }), "agent_hosts"),
            (json!({ "agent_network": {"allow": ["*"]} }), "agent_network.allow[0]"),
            (json!({ "agent_network": {"deny": []} }), "agent_network.deny"),
            (json!({ "agent_network": {"allow": vec!["api.example"; 65]} }), "agent_network.allow"),
            (json!({ "agent_install": "x" }), "agent_install"),
            (json!({ "agent_install": ["x", " "] }), "agent_install[1]"),
            (json!({ "rootfs": "../x" }), "rootfs"),
            (json!({ "rootfs": "" }), "rootfs"),
            (json!({ "on_agent_limit": "go" }), "on_agent_limit"),
            (json!({ "fresh": 1 }), "fresh"),
            (json!({ "labels": many(17) }), "labels"),
            (json!({ "labels": {"a": 1} }), "labels.a"),
            (json!({ "labels": {"": "x"} }), "labels."),
        ] {
            match parse(&change) {
                Err(error @ EvaluationsError::Invalid { .. }) => {
                    let EvaluationsError::Invalid { field: named, .. } = &error else { return };
                    assert_eq!(named, field, "{change}");
                    assert_eq!(error.code(), "evaluate.invalid_request");
                }
                other => panic!("{change}: {other:?}"),
            }
        }
        assert!(parse(&json!({ "agent_env": many(64) })).is_ok());
        assert!(parse(&json!({ "labels": many(16) })).is_ok());
    }

    #[test]
    fn a_host_outside_of_the_services_is_denied() {
        let denied = parse(&json!({ "agent_network": {"allow": ["api.example", "x.example"]} }));
        let denied = denied.unwrap_err();
        assert_eq!(denied.code(), "policy.network_denied");
        assert!(denied.to_string().contains("x.example"), "{denied}");
        assert!(parse(&json!({ "agent_network": {"allow": ["api.example"]} })).is_ok());
    }

    #[test]
    fn an_unknown_language_names_those_that_are_known() {
        let Err(EvaluationsError::Invalid { details, .. }) =
            parse(&json!({ "agent_language": "cobol" }))
        else {
            panic!("accepted");
        };
        let known = details["known"].as_array().unwrap();
        assert!(known.contains(&json!("python")) && known.contains(&json!("rs")), "{details}");
    }
}
