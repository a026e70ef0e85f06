//! JSON documents in a Case: the request of a job, and what an agent may reach.

use serde_json::{Map, Value, json};

use super::block::{CaseBlock, CaseField, CaseReading, unknown_key};
use super::finding::CaseCode;
use super::node::YamlValue;
use crate::egress::rules::NetworkRules;
use cofferdam_core::NetworkObject;
use cofferdam_core::job::{RunJobRequest, ValidRequest};
use cofferdam_core::json::{JsonFault, parse_object};

/// The keys of a job's request but its workspace, which is the Cell's, and its id.
const JOB_KEYS: [&str; 5] = ["trace", "command", "policy", "limits", "backend"];
/// Holds these keys, if the harness does not have them itself.
const REQUEST: &str = "request";
/// The network object of a request, below `policy`.
const NETWORK: &str = "network";
/// The keys of a harness of kind `job`.
pub const JOB_HARNESS_KEYS: [&str; 6] =
    ["trace", "command", "policy", "limits", "backend", REQUEST];

/// Notes the values of secrets that are written in the file, and the first other fault of a network object.
pub fn check_network(field: &CaseField<'_>, reading: &mut CaseReading<'_>) {
    let mut json = field.node.to_json();
    let secrets = json.get_mut("secrets").and_then(Value::as_object_mut);
    for (name, secret) in secrets.into_iter().flatten() {
        let Some(value) = secret.get_mut("value") else { continue };
        // The rest is checked as with a value.
        let value = std::mem::replace(value, Value::from("the value of a variable"));
        if !is_variable(&value) {
            let path = format!("{}.secrets.{name}.value", field.path);
            let message = "a Case holds no secret: write {env: VARIABLE}";
            reading.error(field.node.at, &path, CaseCode::InvalidValue, message);
        }
    }
    let (path, words) = match parse_object::<NetworkObject>(json.to_string().as_bytes()) {
        Ok(object) => match NetworkRules::check(&object) {
            Ok(()) => return,
            Err(fault) => (fault.path, fault.words),
        },
        Err(JsonFault::Invalid { path, words }) => (path, words),
        Err(JsonFault::NotJson { .. }) => (String::new(), "this is no network object".to_owned()),
    };
    note_fault(field.node.at, &field.path, &path, &words, reading);
}

/// The request of a job: the keys of the harness itself, or those below `request`. The first of its faults is noted,
/// and all of its network.
pub fn job_request(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> Value {
    let Some(below) = block.written(REQUEST) else { return read_request(block, reading) };
    if JOB_KEYS.iter().any(|key| block.written(key).is_some()) {
        let message = "'request' and the keys of a request beside it exclude each other";
        below.error(reading, CaseCode::Conflict, message);
    }
    let is_mapping = matches!(below.node.value, YamlValue::Map(_));
    let below = below.block(reading, &JOB_KEYS);
    // What is no mapping has no key to miss.
    if is_mapping { read_request(&below, reading) } else { Value::Null }
}

fn read_request(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> Value {
    let written = JOB_KEYS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), block.written(key)?.node.to_json())));
    let request: Map<String, Value> = written.collect();
    let mut whole = request.clone();
    // Any workspace makes it a whole request.
    whole.insert("workspace".to_owned(), json!({"source": "local_path", "path": "/"}));
    if let Some(network) = network_of(block) {
        check_network(&network, reading);
        // Its secrets are variables here.
        if let Some(Value::Object(policy)) = whole.get_mut("policy") {
            policy.remove(NETWORK);
        }
    }
    let parsed = parse_object::<RunJobRequest>(Value::Object(whole).to_string().as_bytes());
    let (path, words) = match parsed.map(ValidRequest::try_from) {
        Ok(Ok(_)) | Err(JsonFault::NotJson { .. }) => return Value::Object(request),
        Ok(Err(error)) => {
            let path = error.details.get("path").and_then(Value::as_str);
            (path.unwrap_or_default().to_owned(), error.message)
        }
        Err(JsonFault::Invalid { path, words }) => (path, words),
    };
    note_fault(block.at, &block.path, &path, &words, reading);
    Value::Object(request)
}

/// `policy.network` of a request, if it is an object.
fn network_of<'n>(block: &CaseBlock<'n>) -> Option<CaseField<'n>> {
    let policy = block.written("policy")?;
    let YamlValue::Map(entries) = &policy.node.value else { return None };
    let (_, node) = entries.iter().find(|(key, _)| key.name == NETWORK)?;
    let path = format!("{}.{NETWORK}", policy.path);
    matches!(node.value, YamlValue::Map(_)).then_some(CaseField { node, path })
}

/// Notes a fault of the JSON at `parent`, which has its own words for what is wrong.
fn note_fault(at: u32, parent: &str, path: &str, words: &str, reading: &mut CaseReading<'_>) {
    let code = if words.contains("unknown field") {
        CaseCode::UnknownKey
    } else if words.contains("missing") || words.contains("required") {
        CaseCode::Missing
    } else if words.contains("invalid type") {
        CaseCode::WrongType
    } else {
        CaseCode::InvalidValue
    };
    let path = match path.trim_start_matches('.') {
        "" => parent.to_owned(),
        path => format!("{parent}.{path}"),
    };
    // The words may begin with the path.
    let words = words
        .rsplit_once(": ")
        .filter(|(before, _)| !before.contains(' '))
        .map_or(words, |(_, words)| words);
    match quoted(words).split_first() {
        Some((name, known)) if code == CaseCode::UnknownKey => {
            reading.error(at, &path, code, unknown_key(name, known));
        }
        _ => reading.error(at, &path, code, words),
    }
}

/// The names between backticks: of a key that is not known, and those that are.
fn quoted(words: &str) -> Vec<&str> {
    words.split('`').skip(1).step_by(2).collect()
}

/// Whether the value of a secret is `{env: VARIABLE}`.
fn is_variable(value: &Value) -> bool {
    let object = value.as_object().filter(|object| object.len() == 1);
    object.and_then(|object| object.get("env")).is_some_and(Value::is_string)
}
