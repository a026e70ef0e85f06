//! Values of a case file with their paths. What is wrong is noted, and reading goes on.

use std::collections::BTreeMap;
use std::path::Path;

use super::finding::{CaseCode, CaseFinding};
use super::node::{YamlKey, YamlNode, YamlValue};

/// How alike two keys are, from 0 to 1, for one to be suggested for the other.
const SUGGESTION_LIKENESS_MIN: f64 = 0.7;

/// What has been found so far, and where local files are.
#[derive(Debug)]
pub struct CaseReading<'d> {
    /// The directory of the case file.
    pub directory: &'d Path,
    errors: Vec<(u32, CaseFinding)>,
    warnings: Vec<(u32, CaseFinding)>,
}

impl<'d> CaseReading<'d> {
    /// Nothing is found.
    pub fn new(directory: &'d Path) -> Self {
        Self { directory, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Notes an error of the value at `path`, which has the place `at` in the file.
    pub fn error(&mut self, at: u32, path: &str, code: CaseCode, message: impl Into<String>) {
        let (path, message) = (path.to_owned(), message.into());
        self.errors.push((at, CaseFinding { path, code, message }));
    }

    /// Notes a warning.
    pub fn warn(&mut self, at: u32, path: &str, code: CaseCode, message: impl Into<String>) {
        let (path, message) = (path.to_owned(), message.into());
        self.warnings.push((at, CaseFinding { path, code, message }));
    }

    /// The errors and the warnings, each in the order of the file.
    pub fn into_findings(self) -> (Vec<CaseFinding>, Vec<CaseFinding>) {
        let sorted = |mut found: Vec<(u32, CaseFinding)>| {
            found.sort_by_key(|(at, _)| *at);
            found.into_iter().map(|(_, finding)| finding).collect()
        };
        (sorted(self.errors), sorted(self.warnings))
    }
}

/// A value and its path.
#[derive(Debug, Clone)]
pub struct CaseField<'n> {
    /// The value.
    pub node: &'n YamlNode,
    /// Such as `graders[1].cmd`.
    pub path: String,
}

impl<'n> CaseField<'n> {
    /// Notes an error of this value.
    pub fn error(&self, reading: &mut CaseReading<'_>, code: CaseCode, message: impl Into<String>) {
        reading.error(self.node.at, &self.path, code, message);
    }

    /// Notes a warning about this value.
    pub fn warn(&self, reading: &mut CaseReading<'_>, code: CaseCode, message: impl Into<String>) {
        reading.warn(self.node.at, &self.path, code, message);
    }

    fn wrong_type(&self, reading: &mut CaseReading<'_>, wanted: &str) {
        let found = match &self.node.value {
            YamlValue::Null => "null",
            YamlValue::Flag(_) => "a boolean",
            YamlValue::Whole(_) => "an integer",
            YamlValue::Number(_) => "a number",
            YamlValue::Text(_) => "a string",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a mapping",
        };
        let message = format!("expected {wanted}, found {found}");
        self.error(reading, CaseCode::WrongType, message);
    }

    /// A string.
    pub fn text(&self, reading: &mut CaseReading<'_>) -> Option<&'n str> {
        match &self.node.value {
            YamlValue::Text(text) => Some(text),
            _ => {
                self.wrong_type(reading, "a string");
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn flag(&self, reading: &mut CaseReading<'_>) -> Option<bool> {
        match self.node.value {
            YamlValue::Flag(flag) => Some(flag),
            _ => {
                self.wrong_type(reading, "true or false");
                None
            }
        }
    }

    /// An integer of at least `min`.
    pub fn whole(&self, reading: &mut CaseReading<'_>, min: i64) -> Option<i64> {
        match self.node.value {
            YamlValue::Whole(whole) if whole >= min => Some(whole),
            YamlValue::Whole(whole) => {
                let message = format!("{whole} is less than {min}");
                self.error(reading, CaseCode::InvalidValue, message);
                None
            }
            _ => {
                self.wrong_type(reading, "an integer");
                None
            }
        }
    }

    /// A finite number.
    pub fn number(&self, reading: &mut CaseReading<'_>) -> Option<f64> {
        match self.node.value {
            // Beyond 2^53 a limit is as good as none.
            #[expect(clippy::cast_precision_loss, reason = "these numbers are small")]
            YamlValue::Whole(whole) => Some(whole as f64),
            YamlValue::Number(number) if number.is_finite() => Some(number),
            _ => {
                self.wrong_type(reading, "a number");
                None
            }
        }
    }

    /// The items of a list.
    pub fn items(&self, reading: &mut CaseReading<'_>) -> Vec<CaseField<'n>> {
        let YamlValue::List(items) = &self.node.value else {
            self.wrong_type(reading, "a list");
            return Vec::new();
        };
        let item = |(index, node)| CaseField { node, path: format!("{}[{index}]", self.path) };
        items.iter().enumerate().map(item).collect()
    }

    /// The strings of a list.
    pub fn texts(&self, reading: &mut CaseReading<'_>) -> Vec<String> {
        let items = self.items(reading);
        items.iter().filter_map(|item| item.text(reading).map(str::to_owned)).collect()
    }

    /// The entries of a mapping whose keys are free, without those that are there twice.
    pub fn entries(&self, reading: &mut CaseReading<'_>) -> Vec<(&'n YamlKey, CaseField<'n>)> {
        let YamlValue::Map(entries) = &self.node.value else {
            self.wrong_type(reading, "a mapping");
            return Vec::new();
        };
        let mut found: BTreeMap<&str, ()> = BTreeMap::new();
        let mut fields = Vec::new();
        for (key, node) in entries {
            let path = child_path(&self.path, &key.name);
            if found.insert(&key.name, ()).is_some() {
                let message = format!("duplicate key '{}'", key.name);
                reading.error(key.at, &path, CaseCode::DuplicateKey, message);
                continue;
            }
            fields.push((key, CaseField { node, path }));
        }
        fields
    }

    /// A mapping of strings: the variables of an environment.
    pub fn variables(&self, reading: &mut CaseReading<'_>) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        for (key, field) in self.entries(reading) {
            let is_name = !key.name.is_empty() && !key.name.contains(['=', '\0']);
            let value = field.text(reading);
            if !is_name {
                field.error(reading, CaseCode::InvalidValue, "this is no name of a variable");
            } else if let Some(value) = value {
                if value.contains('\0') {
                    field.error(reading, CaseCode::InvalidValue, "the value contains a null byte");
                }
                variables.insert(key.name.clone(), value.to_owned());
            }
        }
        variables
    }

    /// A mapping with keys of `known` only.
    pub fn block(&self, reading: &mut CaseReading<'_>, known: &[&str]) -> CaseBlock<'n> {
        let entries = self.entries(reading);
        for (key, field) in &entries {
            if !known.contains(&key.name.as_str()) {
                let message = unknown_key(&key.name, known);
                reading.error(key.at, &field.path, CaseCode::UnknownKey, message);
            }
        }
        CaseBlock { path: self.path.clone(), at: self.node.at, entries }
    }

    /// The value that the word means.
    pub fn word<T: Copy>(&self, reading: &mut CaseReading<'_>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(reading)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("'{text}' is none of {}", words.join(", "));
            self.error(reading, CaseCode::InvalidValue, message);
        }
        found.map(|(_, value)| *value)
    }
}

/// The path of the key `name` of the block at `path`.
pub fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `unknown key 'requirments'; did you mean 'requirements'?`
pub fn unknown_key(name: &str, known: &[&str]) -> String {
    let likeness = |word: &&&str| strsim::jaro_winkler(name, word);
    let best = known.iter().max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
    match best.filter(|word| likeness(word) >= SUGGESTION_LIKENESS_MIN) {
        Some(word) => format!("unknown key '{name}'; did you mean '{word}'?"),
        None => format!("unknown key '{name}'"),
    }
}

/// A mapping whose keys are known.
#[derive(Debug)]
pub struct CaseBlock<'n> {
    /// Its path.
    pub path: String,
    /// Its place in the file.
    pub at: u32,
    entries: Vec<(&'n YamlKey, CaseField<'n>)>,
}

impl<'n> CaseBlock<'n> {
    /// The value of a key, `null` too.
    pub fn written(&self, key: &str) -> Option<&CaseField<'n>> {
        self.entries.iter().find(|(name, _)| name.name == key).map(|(_, field)| field)
    }

    /// The value of a key. `null` is as if it were not there.
    pub fn get(&self, key: &str) -> Option<&CaseField<'n>> {
        self.written(key).filter(|field| field.node.value != YamlValue::Null)
    }

    /// The value of a key that has to be there.
    pub fn required(&self, reading: &mut CaseReading<'_>, key: &str) -> Option<&CaseField<'n>> {
        let found = self.get(key);
        if found.is_none() {
            self.missing(reading, key);
        }
        found
    }

    /// Notes that a key is missing.
    pub fn missing(&self, reading: &mut CaseReading<'_>, key: &str) {
        let path = child_path(&self.path, key);
        reading.error(self.at, &path, CaseCode::Missing, format!("'{key}' is required"));
    }

    /// Notes an error of the block as a whole.
    pub fn error(&self, reading: &mut CaseReading<'_>, code: CaseCode, message: impl Into<String>) {
        reading.error(self.at, &self.path, code, message);
    }

    /// An optional string.
    pub fn text(&self, reading: &mut CaseReading<'_>, key: &str) -> Option<String> {
        self.get(key)?.text(reading).map(str::to_owned)
    }

    /// A string that has to be there and is not empty.
    pub fn required_text(&self, reading: &mut CaseReading<'_>, key: &str) -> String {
        let Some(field) = self.required(reading, key) else { return String::new() };
        let text = field.text(reading);
        if text.is_some_and(|text| text.trim().is_empty()) {
            field.error(reading, CaseCode::InvalidValue, format!("'{key}' is empty"));
        }
        text.unwrap_or_default().to_owned()
    }

    /// A list of strings, empty by default.
    pub fn texts(&self, reading: &mut CaseReading<'_>, key: &str) -> Vec<String> {
        self.written(key).map(|field| field.texts(reading)).unwrap_or_default()
    }

    /// Variables, none by default.
    pub fn variables(&self, reading: &mut CaseReading<'_>, key: &str) -> BTreeMap<String, String> {
        self.written(key).map(|field| field.variables(reading)).unwrap_or_default()
    }

    /// A flag with its default.
    pub fn flag(&self, reading: &mut CaseReading<'_>, key: &str, default: bool) -> bool {
        self.written(key).and_then(|field| field.flag(reading)).unwrap_or(default)
    }

    /// An integer of at least `min` with its default.
    pub fn whole(&self, reading: &mut CaseReading<'_>, key: &str, min: i64, default: i64) -> i64 {
        self.written(key).and_then(|field| field.whole(reading, min)).unwrap_or(default)
    }

    /// A word with its default.
    pub fn word<T: Copy>(
        &self,
        reading: &mut CaseReading<'_>,
        key: &str,
        words: &[(&str, T)],
        default: T,
    ) -> T {
        self.written(key).and_then(|field| field.word(reading, words)).unwrap_or(default)
    }

    /// A time above 0 in seconds, with its default.
    pub fn seconds(&self, reading: &mut CaseReading<'_>, key: &str, default: f64) -> f64 {
        let Some(field) = self.written(key) else { return default };
        let Some(seconds) = field.number(reading) else { return default };
        if seconds <= 0.0 {
            field.error(reading, CaseCode::InvalidValue, "a time limit is more than 0 seconds");
        }
        seconds
    }

    /// A number of at least 0 and at most `max`, with its default.
    pub fn number(&self, reading: &mut CaseReading<'_>, key: &str, max: f64, default: f64) -> f64 {
        let Some(field) = self.written(key) else { return default };
        let Some(number) = field.number(reading) else { return default };
        if !(0.0..=max).contains(&number) {
            let bound = if max.is_finite() {
                format!("between 0 and {max}")
            } else {
                "at least 0".to_owned()
            };
            field.error(reading, CaseCode::InvalidValue, format!("{number} is not {bound}"));
        }
        number
    }
}
