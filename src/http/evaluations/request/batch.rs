//! The body of `POST /evaluations/batch`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::fields::{self, invalid, parse_body};
use super::network;
use crate::evaluation::service::{BatchAgent, BatchRequest, BatchTask, EvaluationsError};
use crate::http::evaluations::settings::EvaluationRequestBounds;
use cofferdam_core::NetworkObject;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    tasks: Vec<TaskBody>,
    agents: Vec<AgentBody>,
    repeat: Option<u64>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskBody {
    task_url: String,
    task_sha256: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentBody {
    name: String,
    agent_code: Option<String>,
    patch: Option<String>,
    agent_language: Option<String>,
    agent_env: Option<BTreeMap<String, String>>,
    agent_network: Option<NetworkObject>,
    agent_install: Option<Vec<String>>,
}

/// Parses a request for a batch.
///
/// # Errors
/// The first field that is wrong.
pub fn parse_batch(
    body: &[u8],
    bounds: &EvaluationRequestBounds,
) -> Result<BatchRequest, EvaluationsError> {
    let BatchBody { tasks, agents, repeat, labels } = parse_body(body)?;
    let repeat = repeat.unwrap_or(1);
    check_size(tasks.len(), agents.len(), repeat, bounds.batch_max)?;
    let labels = labels.unwrap_or_default();
    fields::labels(&labels)?;
    let (mut urls, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut read_tasks = Vec::with_capacity(tasks.len());
    for (index, TaskBody { task_url, task_sha256 }) in tasks.into_iter().enumerate() {
        if !urls.insert(task_url.clone()) {
            return Err(invalid(format!("tasks[{index}].task_url"), "there twice"));
        }
        let task = fields::task(&format!("tasks[{index}]."), task_url, task_sha256)?;
        read_tasks.push(BatchTask { task });
    }
    let mut read_agents = Vec::with_capacity(agents.len());
    for (index, agent) in agents.into_iter().enumerate() {
        if !names.insert(agent.name.clone()) {
            return Err(invalid(format!("agents[{index}].name"), "there twice"));
        }
        read_agents.push(read_agent(&format!("agents[{index}]."), agent, bounds)?);
    }
    Ok(BatchRequest { tasks: read_tasks, agents: read_agents, repeat, labels })
}

fn check_size(
    tasks: usize,
    agents: usize,
    repeat: u64,
    batch_max: u64,
) -> Result<(), EvaluationsError> {
    if tasks == 0 {
        return Err(invalid("tasks", "want at least one"));
    }
    if agents == 0 {
        return Err(invalid("agents", "want at least one"));
    }
    if repeat == 0 {
        return Err(invalid("repeat", "want at least 1"));
    }
    let count = (tasks as u64).saturating_mul(agents as u64).saturating_mul(repeat);
    if count > batch_max {
        let field = if tasks as u64 > batch_max { "tasks" } else { "repeat" };
        let message = format!("{count} evaluations; want at most {batch_max} in a batch");
        return Err(invalid(field, message));
    }
    Ok(())
}

fn read_agent(
    path: &str,
    agent: AgentBody,
    bounds: &EvaluationRequestBounds,
) -> Result<BatchAgent, EvaluationsError> {
    fields::agent_name(&format!("{path}name"), &agent.name)?;
    let (code, patch) = (agent.agent_code, agent.patch);
    let language = agent.agent_language.as_deref();
    let work = fields::work(path, code, patch, language, bounds.agent_code_bytes_max)?;
    let agent_env = agent.agent_env.unwrap_or_default();
    fields::agent_env(path, &agent_env)?;
    if let Some(asked) = &agent.agent_network {
        let field = format!("{path}agent_network");
        network::agent_network_of_batch(&field, asked, &bounds.agent_hosts)?;
    }
    let agent_install = agent.agent_install.unwrap_or_default();
    fields::commands(&format!("{path}agent_install"), &agent_install)?;
    let (name, agent_network) = (agent.name, agent.agent_network);
    Ok(BatchAgent { name, work, agent_env, agent_network, agent_install })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::egress::AllowList;

    fn parse(change: &Value) -> Result<BatchRequest, EvaluationsError> {
        let bounds = EvaluationRequestBounds {
            agent_code_bytes_max: 10,
            agent_timeout: Duration::from_secs(600),
            agent_hosts: AllowList::default(),
            batch_max: 4,
        };
        let mut body = json!({
            "tasks": [{"task_url": "https://h/1"}, {"task_url": "https://h/2"}],
            "agents": [{"name": "a", "agent_code": "x"}, {"name": "b", "patch": "y"}],
        });
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        parse_batch(body.to_string().as_bytes(), &bounds)
    }

    #[test]
    fn a_batch_is_each_agent_on_each_task() {
        let batch = parse(&json!({ "labels": {"l": "v"} })).unwrap();
        assert_eq!((batch.tasks.len(), batch.agents.len(), batch.repeat), (2, 2, 1));
        assert_eq!((batch.agents[1].name.as_str(), batch.labels["l"].as_str()), ("b", "v"));
    }

    #[test]
    fn a_wrong_field_of_a_batch_is_refused_by_its_path() {
        let agent = |change: Value| {
            let mut agent = json!({ "name": "a", "agent_code": "x" });
            for (name, value) in change.as_object().unwrap() {
                agent[name] = value.clone();
            }
            json!({ "agents": [{"name": "z", "agent_code": "x"}, agent] })
        };
        let twice = json!([{"task_url": "https://h/1"}, {"task_url": "https://h/1"}]);
        for (change, field) in [
            (json!({ "other": 1 }), "other"),
            (json!({ "tasks": [] }), "tasks"),
            (json!({ "tasks": twice }), "tasks[1].task_url"),
            (json!({ "tasks": [{"task_url": "x"}] }), "tasks[0].task_url"),
            (json!({ "tasks": [{}] }), "tasks[0].task_url"),
            (json!({ "agents": [] }), "agents"),
            (json!({ "repeat": 0 }), "repeat"),
            (json!({ "repeat": 2 }), "repeat"),
            (json!({ "repeat": u64::MAX }), "repeat"),
            (json!({ "labels": 1 }), "labels"),
            (agent(json!({ "name": "z" })), "agents[1].name"),
            (agent(json!({ "name": "" })), "agents[1].name"),
            (agent(json!({ "agent_code": "" })), "agents[1].agent_code"),
            (agent(json!({ "patch": "x" })), "agents[1].patch"),
            (agent(json!({ "agent_language": "x" })), "agents[1].agent_language"),
            (agent(json!({ "agent_env": {"HOME": "x"} })), "agents[1].agent_env.HOME"),
            (agent(json!({ "agent_install": [""] })), "agents[1].agent_install[0]"),
            (
                agent(json!({ "agent_network": {"allow": ["*"]} })),
                "agents[1].agent_network.allow[0]",
            ),
            (agent(json!({ "fresh": true })), "agents[1].fresh"),
        ] {
            match parse(&change) {
                Err(EvaluationsError::Invalid { field: named, .. }) => {
                    assert_eq!(named, field, "{change}");
                }
                other => panic!("{change}: {other:?}"),
            }
        }
        let denied = parse(&agent(json!({ "agent_network": {"allow": ["h.example"]} })));
        assert_eq!(denied.unwrap_err().code(), "policy.network_denied");
    }
}
