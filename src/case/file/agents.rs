//! `harnesses`: the agents that a Case defines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::block::{CaseBlock, CaseField, CaseReading};
use super::finding::CaseCode;
use super::node::YamlValue;
use super::paths::{WantedFile, case_path};
use super::request::{JOB_HARNESS_KEYS, check_network, job_request};
use crate::egress::AllowList;

const HARNESS_SECONDS: f64 = 1800.0;
const TURNS_MAX: i64 = 50;
/// The keys of every harness.
const COMMON_KEYS: [&str; 5] = ["kind", "env", "egress", "network", "timeout_s"];
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
            Some(KindWord::Job) => &JOB_HARNESS_KEYS,
            Some(KindWord::Openai) => &OPENAI_KEYS,
            // What its keys are is not known.
            None => &["argv", "patch"],
        };
        let block = field.block(reading, &[&COMMON_KEYS, own_keys].concat());
        if let Some(written) = block.required(reading, "kind") {
            written.word(reading, &words);
        }
        if matches!(kind, Some(KindWord::Job)) {
            warn_of_others(&block, reading);
        }
        Self {
            kind: kind.and_then(|kind| read_kind(kind, &block, reading)),
            env: block.variables(reading, "env"),
            network: network(&block, reading),
            timeout_s: block.seconds(reading, "timeout_s", HARNESS_SECONDS),
        }
    }
}

/// Warns of what a job does not get.
fn warn_of_others(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) {
    for key in ["env", "egress", "network"] {
        if let Some(field) = block.written(key) {
            let message = format!("a job has no '{key}' but that of its request");
            field.warn(reading, CaseCode::NoEffect, message);
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
