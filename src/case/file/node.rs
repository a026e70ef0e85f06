//! YAML as a tree whose nodes know their order in the file.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, Options, budget, options};

use super::finding::{CaseCode, CaseFinding};

/// The longest case file, bytes.
pub const CASE_BYTES_MAX: u64 = 1 << 20;
/// Values and keys of a file, those that aliases repeat counted each time.
const NODES_MAX: u32 = 100_000;
const DEPTH_MAX: usize = 64;
const ALIASES_MAX: usize = 1000;

/// A value and its place in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlNode {
    /// How many nodes come before it.
    pub at: u32,
    /// The value.
    pub value: YamlValue,
}

/// A value of YAML's core schema.
#[derive(Debug, Clone, PartialEq)]
pub enum YamlValue {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// An integer.
    Whole(i64),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
    /// A sequence.
    List(Vec<YamlNode>),
    /// A mapping in the order of the file, with keys that are there twice.
    Map(Vec<(YamlKey, YamlNode)>),
}

/// A key and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlKey {
    /// How many nodes come before it.
    pub at: u32,
    /// The key as text.
    pub name: String,
}

impl YamlNode {
    /// Parses a file of one document.
    ///
    /// # Errors
    /// `too_large` beyond the limits on bytes, nodes, depth and aliases; `syntax`.
    pub fn parse(bytes: &[u8]) -> Result<Self, CaseFinding> {
        if bytes.len() as u64 > CASE_BYTES_MAX {
            return Err(too_large(format!("the file is longer than {CASE_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| CaseFinding::of_file(CaseCode::Syntax, "the file is not UTF-8 text"))?;
        let count = Cell::new(0);
        let parsed = serde_saphyr::with_deserializer_from_str_with_options(
            text,
            bounded_options(),
            |deserializer| NodeSeed { count: &count }.deserialize(deserializer),
        );
        parsed.map_err(|error| match count.get() > NODES_MAX {
            true => too_large(format!("more than {NODES_MAX} nodes")),
            false => finding(&error),
        })
    }

    /// The same value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.value {
            YamlValue::Null => Value::Null,
            YamlValue::Flag(flag) => Value::Bool(*flag),
            YamlValue::Whole(whole) => Value::from(*whole),
            YamlValue::Number(number) => Value::from(*number),
            YamlValue::Text(text) => Value::from(text.as_str()),
            YamlValue::List(items) => items.iter().map(Self::to_json).collect(),
            YamlValue::Map(entries) => {
                let entry = |(key, node): &(YamlKey, Self)| (key.name.clone(), node.to_json());
                Value::Object(entries.iter().map(entry).collect())
            }
        }
    }
}

fn bounded_options() -> Options {
    let mut options = options! {
        budget: budget! {
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX as usize,
            max_documents: 1,
        },
        with_snippet: false,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        reject_unsupported_tags: true,
    };
    options.alias_limits.max_total_replayed_events = 2 * NODES_MAX as usize;
    options
}

fn too_large(message: String) -> CaseFinding {
    CaseFinding::of_file(CaseCode::TooLarge, message)
}

/// What is wrong with the file as a whole, with the line.
fn finding(error: &Error) -> CaseFinding {
    let error = match error.without_snippet() {
        Error::AliasError { error, .. } => error,
        other => other,
    };
    let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
    let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    match error {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            too_large(format!("{place}more than {DEPTH_MAX} levels"))
        }
        Error::Budget { breach: BudgetBreach::Nodes { .. }, .. } => {
            too_large(format!("{place}more than {NODES_MAX} nodes"))
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            too_large(format!("{place}more aliases or documents than there may be"))
        }
        other => {
            let words = other.to_string();
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            CaseFinding::of_file(CaseCode::Syntax, format!("{place}{words}"))
        }
    }
}

/// Makes a node, counting it.
#[derive(Clone, Copy)]
struct NodeSeed<'c> {
    count: &'c Cell<u32>,
}

impl NodeSeed<'_> {
    /// Counts a node and returns its place.
    fn next<E: serde::de::Error>(self) -> Result<u32, E> {
        let at = self.count.get();
        self.count.set(at + 1);
        match at < NODES_MAX {
            true => Ok(at),
            false => Err(E::custom("too many nodes")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = YamlNode;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        let at = self.next()?;
        let value = deserializer.deserialize_any(self)?;
        Ok(YamlNode { at, value })
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = YamlValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Flag(flag))
    }

    fn visit_i64<E>(self, whole: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Whole(whole))
    }

    fn visit_u64<E: serde::de::Error>(self, whole: u64) -> Result<YamlValue, E> {
        let whole = i64::try_from(whole);
        whole.map(YamlValue::Whole).map_err(|_| E::custom("the integer is too large"))
    }

    fn visit_f64<E>(self, number: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlValue, A::Error> {
        let mut map = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            let key = YamlKey { at: self.next()?, name };
            map.push((key, entries.next_value_seed(self)?));
        }
        Ok(YamlValue::Map(map))
    }
}
