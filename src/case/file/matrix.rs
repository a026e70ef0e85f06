//! `matrix`: which harnesses and models are tried, and how often.

use super::block::{CaseBlock, CaseField, CaseReading};
use super::finding::CaseCode;
use super::node::YamlValue;

const TRIALS_MAX: i64 = 10_000;

/// A harness with a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixEntry {
    /// The harness's name.
    pub harness: String,
    /// The model's name.
    pub model: String,
}

/// `matrix`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseMatrix {
    /// Harnesses with their models, none twice, in the order of the file.
    pub entries: Vec<MatrixEntry>,
    /// Trials of each.
    pub trials: i64,
}

/// A name of the matrix, and where it stands.
#[derive(Debug)]
pub struct MatrixName {
    /// The name.
    pub name: String,
    /// The path in the file.
    pub path: String,
    /// The place in the file.
    pub at: u32,
}

impl CaseMatrix {
    /// Reads the block, and the harnesses that it names.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> (Self, Vec<MatrixName>) {
        let block = field.block(reading, &["harnesses", "models", "entries", "trials"]);
        let trials = block.whole(reading, "trials", 1, 1);
        if let Some(field) = block.written("trials").filter(|_| trials > TRIALS_MAX) {
            let message = format!("{trials} is more than {TRIALS_MAX}");
            field.error(reading, CaseCode::InvalidValue, message);
        }
        let has_cross = ["harnesses", "models"].iter().any(|key| block.get(key).is_some());
        let mut matrix = Self { entries: Vec::new(), trials };
        let mut named = Vec::new();
        match block.get("entries") {
            Some(_) if has_cross => {
                let message = "'entries' and 'harnesses' with 'models' exclude each other";
                block.error(reading, CaseCode::Conflict, message);
            }
            Some(entries) => matrix.read_entries(entries, reading, &mut named),
            None => matrix.read_cross(&block, reading, &mut named),
        }
        (matrix, named)
    }

    /// How many Cells it has.
    pub fn cells(&self) -> u64 {
        let trials = u64::try_from(self.trials).unwrap_or(0);
        trials * self.entries.len() as u64
    }

    fn read_cross(
        &mut self,
        block: &CaseBlock<'_>,
        reading: &mut CaseReading<'_>,
        named: &mut Vec<MatrixName>,
    ) {
        let harnesses = block.required(reading, "harnesses");
        let harnesses = harnesses.map(|field| names(field, reading)).unwrap_or_default();
        let models = block.required(reading, "models");
        let models = models.map(|field| names(field, reading)).unwrap_or_default();
        for harness in harnesses {
            for model in &models {
                self.add(&harness.name, &model.name);
            }
            named.push(harness);
        }
    }

    fn read_entries(
        &mut self,
        field: &CaseField<'_>,
        reading: &mut CaseReading<'_>,
        named: &mut Vec<MatrixName>,
    ) {
        let entries = field.items(reading);
        if entries.is_empty() && matches!(field.node.value, YamlValue::List(_)) {
            field.error(reading, CaseCode::InvalidValue, "'entries' is empty");
        }
        for entry in entries {
            let block = entry.block(reading, &["harness", "models"]);
            let harness = block.required(reading, "harness");
            let harness = harness.and_then(|field| name(field, reading));
            let models = block.required(reading, "models");
            let models = models.map(|field| names(field, reading)).unwrap_or_default();
            let Some(harness) = harness else { continue };
            for model in &models {
                self.add(&harness.name, &model.name);
            }
            named.push(harness);
        }
    }

    fn add(&mut self, harness: &str, model: &str) {
        let entry = MatrixEntry { harness: harness.to_owned(), model: model.to_owned() };
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }
}

/// The names of a list, which is not empty.
fn names(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Vec<MatrixName> {
    let items = field.items(reading);
    if items.is_empty() && matches!(field.node.value, YamlValue::List(_)) {
        field.error(reading, CaseCode::InvalidValue, "the list is empty");
    }
    items.iter().filter_map(|item| name(item, reading)).collect()
}

/// A name: not empty, and without control characters.
fn name(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Option<MatrixName> {
    let text = field.text(reading)?;
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        field.error(reading, CaseCode::InvalidValue, "this is no name");
        return None;
    }
    Some(MatrixName { name: text.to_owned(), path: field.path.clone(), at: field.node.at })
}
