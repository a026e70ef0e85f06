//! What is known of every evaluation, in memory.

use std::collections::{BTreeMap, HashMap};

use crate::evaluation::service::api::{EvaluationPage, EvaluationQuery};
use crate::evaluation::service::error::EvaluationsError;
use crate::evaluation::service::record::{EvaluationLine, RecordFile};

/// Every evaluation, by id and in order.
#[derive(Debug, Default)]
pub struct EvaluationIndex {
    entries: HashMap<String, RecordFile>,
    /// By owner, then by order.
    ordered: BTreeMap<(String, u64), String>,
    last_order: u64,
}

impl EvaluationIndex {
    /// An order that is larger than every other.
    pub fn next_order(&mut self, now_ns: u64) -> u64 {
        self.last_order = now_ns.max(self.last_order.saturating_add(1));
        self.last_order
    }

    /// Inserts or replaces an evaluation.
    pub fn put(&mut self, record: RecordFile) {
        self.last_order = self.last_order.max(record.order);
        self.ordered.insert((record.owner.clone(), record.order), record.eval_id.clone());
        self.entries.insert(record.eval_id.clone(), record);
    }

    /// Removes an evaluation.
    pub fn remove(&mut self, id: &str) {
        if let Some(record) = self.entries.remove(id) {
            self.ordered.remove(&(record.owner, record.order));
        }
    }

    /// An evaluation.
    pub fn get(&self, id: &str) -> Option<&RecordFile> {
        self.entries.get(id)
    }

    /// An evaluation of `owner`.
    pub fn of(&self, owner: &str, id: &str) -> Option<&RecordFile> {
        self.entries.get(id).filter(|record| record.owner == owner)
    }

    /// An evaluation, to be changed besides its owner and order.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut RecordFile> {
        self.entries.get_mut(id)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &RecordFile> {
        self.entries.values()
    }

    /// A page of the list of `owner`, the newest first.
    ///
    /// # Errors
    /// A cursor that no list returned.
    pub fn page(
        &self,
        owner: &str,
        query: &EvaluationQuery,
    ) -> Result<EvaluationPage, EvaluationsError> {
        let before = query.cursor.as_deref().map_or(Some(u64::MAX), parse_cursor);
        let before = before
            .ok_or_else(|| EvaluationsError::invalid("cursor", "not a cursor of this list"))?;
        let range = (owner.to_owned(), 0)..(owner.to_owned(), before);
        let listed = self.ordered.range(range).rev();
        let mut wanted = listed
            .filter_map(|(_, id)| self.entries.get(id))
            .filter(|record| is_wanted(record, query));
        let records: Vec<&RecordFile> = wanted.by_ref().take(query.limit).collect();
        let has_more = wanted.next().is_some();
        let last = records.last().map(|record| format!("{:016x}", record.order));
        let lines: Vec<_> = records.iter().map(|record| EvaluationLine::of(record)).collect();
        let json = serde_json::to_string(&lines);
        let json = json.map_err(|error| EvaluationsError::Store(error.to_string()))?;
        Ok(EvaluationPage { json, next_cursor: last.filter(|_| has_more) })
    }
}

fn parse_cursor(cursor: &str) -> Option<u64> {
    let is_ours = cursor.len() == 16 && cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_ours { u64::from_str_radix(cursor, 16).ok() } else { None }
}

fn is_wanted(record: &RecordFile, query: &EvaluationQuery) -> bool {
    query.status.is_none_or(|status| record.status == status)
        && query.verdict.is_none_or(|verdict| record.verdict == Some(verdict))
        && query.label.as_ref().is_none_or(|(key, value)| record.labels.get(key) == Some(value))
}
