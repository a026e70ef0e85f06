//! `harnesses`: the agents that a Case defines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::block::{CaseBlock, CaseField, CaseReading};
use super::finding::CaseCode;
use super::node::YamlValue;
use super::paths::{WantedFile, case_path};
use crate::egress::AllowList;
use crate::egress::rules::NetworkRules;
use cofferdam_core::NetworkObject;
use cofferdam_core::job::{RunJobRequest, ValidRequest};
use cofferdam_core::json::{JsonFault, parse_object};

const HARNESS_SECONDS: f64 = 1800.0;
const TURNS_MAX: i64 = 50;
/// The keys of every harness.
const COMMON_KEYS: [&str; 5] = ["kind", "env", "egress", "network", "timeout_s"];
/// The keys of a job's request but its workspace, which is the Cell's, and its id.
const JOB_KEYS: [&str; 5] = ["trace", "command", "policy", "limits", "backend"];
const OPENAI_KEYS: [&str; 7] =
    ["base_url", "api_key_env", "secret", "max_turns", "temperature", "price_in", "price_out"];
/// The harnesses that every Case has.
pub const BUILT_IN: [&str; 2] = ["nop", "oracle"];

/// What a harness may reach.
#[derive(Debug, Clone, PartialEq)]
pub enum HarnessNetwork {
    /// These hosts.
    Egress(Vec<String>),
    /// The network object, as it is written.
    Object(Value),
}

/// A harness of its kind.
#[derive(Debug, Clone, PartialEq)]
pub enum HarnessKind {
    /// A command line.
    Command {
        /// With placeholders.
        argv: Vec<String>,
    },
    /// A patch that is applied.
    Replay {
        /// Below the directory of the Case.
        patch: PathBuf,
    },
    /// A job without its workspace.
    Job {
        /// The request without its workspace, as it is written.
        request: Value,
    },
    /// The chat-completions loop.
    Openai {
        /// The endpoint; `OPENAI_BASE_URL` if none.
        base_url: Option<String>,
        /// The variable with the key.
        api_key_env: Option<String>,
        /// The secret with the key.
        secret: Option<String>,
        /// Requests to the model.
        max_turns: i64,
        /// The temperature, if any.
        temperature: Option<f64>,
        /// Price of a million tokens read, in dollars.
        price_in: f64,
        /// Price of a million tokens written, in dollars.
        price_out: f64,
    },
}

/// A harness of a Case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseHarness {
    /// What it does; `None` after an error.
    pub kind: Option<HarnessKind>,
    /// Variables of its programs.
    pub env: BTreeMap<String, String>,
    /// What it may reach.
    pub network: HarnessNetwork,
    /// Limit on the whole step, seconds.
    pub timeout_s: f64,
}

#[derive(Debug, Clone, Copy)]
enum KindWord {
    Command,
    Replay,
    Job,
    Openai,
}

impl CaseHarness {
    /// Reads the harnesses by name.
    pub fn read_all(
        field: &CaseField<'_>,
        reading: &mut CaseReading<'_>,
    ) -> BTreeMap<String, Self> {
        let mut harnesses = BTreeMap::new();
        for (key, field) in field.entries(reading) {
            if BUILT_IN.contains(&key.name.as_str()) {
                let message = format!("'{}' is built in and cannot be defined", key.name);
                reading.error(key.at, &field.path, CaseCode::InvalidValue, message);
            }
            harnesses.insert(key.name.clone(), Self::read(&field, reading));
        }
        harnesses
    }

    fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Self {
        let words = [
            ("command", KindWord::Command),
            ("replay", KindWord::Replay),
            ("job", KindWord::Job),
            ("openai", KindWord::Openai),
        ];
        let kind = kind_of(field)
            .and_then(|kind| kind.word(&mut CaseReading::new(reading.directory), &words));
        let own_keys: &[&str] = match kind {
            Some(KindWord::Command) => &["argv"],
            Some(KindWord::Replay) => &["patch"],
            Some(KindWord::Job) => &JOB_KEYS,
            Some(KindWord::Openai) => &OPENAI_KEYS,
            // What its keys are is not known.
            None => &["argv", "patch"],
        };
        let block = field.block(reading, &[&COMMON_KEYS, own_keys].concat());
        if let Some(written) = block.required(reading, "kind") {
            written.word(reading, &words);
        }
        Self {
            kind: kind.and_then(|kind| read_kind(kind, &block, reading)),
            env: block.variables(reading, "env"),
            network: network(&block, reading),
            timeout_s: block.seconds(reading, "timeout_s", HARNESS_SECONDS),
        }
    }
}

/// The value of `kind`, before the block is read.
fn kind_of<'n>(field: &CaseField<'n>) -> Option<CaseField<'n>> {
    let YamlValue::Map(entries) = &field.node.value else { return None };
    let (_, node) = entries.iter().find(|(key, _)| key.name == "kind")?;
    Some(CaseField { node, path: String::new() })
}

fn read_kind(
    kind: KindWord,
    block: &CaseBlock<'_>,
    reading: &mut CaseReading<'_>,
) -> Option<HarnessKind> {
    match kind {
        KindWord::Command => {
            let field = block.required(reading, "argv")?;
            let argv = field.texts(reading);
            if matches!(&field.node.value, YamlValue::List(items) if items.is_empty()) {
                field.error(reading, CaseCode::InvalidValue, "'argv' is empty");
            }
            Some(HarnessKind::Command { argv })
        }
        KindWord::Replay => {
            let patch = case_path(block.required(reading, "patch")?, reading, WantedFile::File)?;
            Some(HarnessKind::Replay { patch })
        }
        KindWord::Job => Some(HarnessKind::Job { request: job_request(block, reading) }),
        KindWord::Openai => {
            let temperature = block.written("temperature").and_then(|field| field.number(reading));
            Some(HarnessKind::Openai {
                base_url: block.text(reading, "base_url"),
                api_key_env: block.text(reading, "api_key_env"),
                secret: block.text(reading, "secret"),
                max_turns: block.whole(reading, "max_turns", 1, TURNS_MAX),
                temperature,
                price_in: block.number(reading, "price_in", f64::INFINITY, 0.0),
                price_out: block.number(reading, "price_out", f64::INFINITY, 0.0),
            })
        }
    }
}

/// `egress` or `network`.
fn network(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> HarnessNetwork {
    let (egress, network) = (block.written("egress"), block.written("network"));
    let hosts = egress.map(|field| hosts(field, reading)).unwrap_or_default();
    let Some(network) = network else { return HarnessNetwork::Egress(hosts) };
    if egress.is_some() {
        network.error(reading, CaseCode::Conflict, "'egress' and 'network' exclude each other");
    }
    check_network(network, reading);
    HarnessNetwork::Object(network.node.to_json())
}

/// A list of hosts, `host[:port]`.
pub fn hosts(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for item in field.items(reading) {
        let Some(text) = item.text(reading) else { continue };
        match AllowList::parse(&[text.to_owned()]) {
            Ok(_) => hosts.push(text.to_owned()),
            Err(error) => item.error(reading, CaseCode::InvalidValue, error.to_string()),
        }
    }
    hosts
}

/// Notes the values of secrets that are written in the file, and the first other fault of a network object.
fn check_network(field: &CaseField<'_>, reading: &mut CaseReading<'_>) {
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

/// The request of a job, with the first of its faults noted.
fn job_request(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) -> Value {
    let written = JOB_KEYS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), block.written(key)?.node.to_json())));
    let request: serde_json::Map<String, Value> = written.collect();
    let mut whole = request.clone();
    // Any workspace makes it a whole request.
    whole.insert("workspace".to_owned(), serde_json::json!({"source": "local_path", "path": "/"}));
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
    reading.error(at, &path, code, words);
}

/// Whether the value of a secret is `{env: VARIABLE}`.
fn is_variable(value: &Value) -> bool {
    let object = value.as_object().filter(|object| object.len() == 1);
    object.and_then(|object| object.get("env")).is_some_and(Value::is_string)
}
