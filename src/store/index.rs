//! The index of all jobs in memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use cofferdam_core::job::{Idempotency, JobId, JobLine, JobStatus};

/// The most jobs on one page.
pub(super) const PAGE_JOBS_MAX: usize = 1000;

/// The position of a job in lists: by the time it was accepted, then by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    order: u64,
    id: JobId,
}

impl Key {
    /// The cursor for clients.
    fn to_cursor(&self) -> String {
        format!("{:016x}.{}", self.order, self.id)
    }

    /// Parses a cursor.
    pub(super) fn parse(cursor: &str) -> Option<Self> {
        let (order, id) = cursor.split_once('.').filter(|(order, _)| order.len() == 16)?;
        let order = u64::from_str_radix(order, 16).ok()?;
        Some(Self { order, id: JobId::parse(id).ok()? })
    }
}

/// Who owns a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// This opening of the store.
    Ours,
    /// Another opening, or a dead one: the files of the job tell.
    Unowned,
    /// No owner: the job has ended.
    Over,
}

/// A job in the index.
#[derive(Debug, Clone)]
pub(super) struct IndexEntry {
    pub(super) line: JobLine,
    pub(super) order: u64,
    /// The size of the record on the disk; zero until the job has ended.
    pub(super) bytes: u64,
    pub(super) hold: Hold,
    /// The `Idempotency-Key` and the digest of the request.
    pub(super) idempotency: Option<Idempotency>,
}

/// When a job ended, and its id.
pub(super) type EndedKey = (String, JobId);

/// Every job, by id and in order.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<JobId, IndexEntry>,
    ordered: BTreeSet<Key>,
    by_status: BTreeSet<(JobStatus, Key)>,
    unowned: BTreeSet<JobId>,
    /// Ended jobs, by time.
    ended: BTreeSet<EndedKey>,
    /// The last job of each key.
    by_idempotency: HashMap<String, JobId>,
    bytes: u64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The size of the records of all ended jobs.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, id: &JobId) -> Option<&IndexEntry> {
        self.entries.get(id)
    }

    /// The last job that came with `key`.
    pub(super) fn by_idempotency(&self, key: &str) -> Option<&IndexEntry> {
        self.by_idempotency.get(key).and_then(|id| self.entries.get(id))
    }

    /// The jobs that this opening does not own.
    pub(super) fn unowned(&self) -> Vec<JobId> {
        self.unowned.iter().cloned().collect()
    }

    /// Inserts or updates a job.
    pub(super) fn put(&mut self, entry: IndexEntry) {
        let id = entry.line.job_id.clone();
        self.remove(&id);
        let key = Key { order: entry.order, id: id.clone() };
        self.by_status.insert((entry.line.status, key.clone()));
        self.ordered.insert(key);
        if entry.hold == Hold::Unowned {
            self.unowned.insert(id.clone());
        }
        self.ended.extend(ended(&entry));
        if let Some(Idempotency { key, .. }) = &entry.idempotency {
            self.by_idempotency.insert(key.clone(), id.clone());
        }
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.entries.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: &JobId) -> Option<IndexEntry> {
        let entry = self.entries.remove(id)?;
        let key = Key { order: entry.order, id: id.clone() };
        self.ordered.remove(&key);
        self.by_status.remove(&(entry.line.status, key));
        self.unowned.remove(id);
        if let Some(ended) = ended(&entry) {
            self.ended.remove(&ended);
        }
        if let Some(Idempotency { key, .. }) = &entry.idempotency
            && self.by_idempotency.get(key) == Some(id)
        {
            self.by_idempotency.remove(key);
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry)
    }

    /// The owner has dropped the job before it ended.
    pub(super) fn release(&mut self, id: &JobId) {
        if let Some(entry) = self.entries.get_mut(id) {
            if let Some(ended) = ended(entry) {
                self.ended.remove(&ended);
            }
            entry.hold = Hold::Unowned;
            self.unowned.insert(id.clone());
        }
    }

    /// Returns at most `limit` jobs older than `after`, the newest first, and the next cursor.
    pub(super) fn page(
        &self,
        status: Option<JobStatus>,
        limit: usize,
        after: Option<&Key>,
    ) -> (Vec<JobLine>, Option<String>) {
        let limit = limit.clamp(1, PAGE_JOBS_MAX);
        let mut keys: Vec<&Key> = match (status, after) {
            (None, None) => self.ordered.iter().rev().take(limit + 1).collect(),
            (None, Some(after)) => self.ordered.range(..after).rev().take(limit + 1).collect(),
            (Some(status), after) => {
                // Sorts after every other key.
                let never = Key { order: u64::MAX, id: last_name() };
                let end = (status, after.cloned().unwrap_or(never));
                let below = self.by_status.range(..end).rev();
                let same = below.take_while(|(other, _)| *other == status);
                same.map(|(_, key)| key).take(limit + 1).collect()
            }
        };
        let more = keys.len() > limit;
        keys.truncate(limit);
        let next = keys.last().filter(|_| more).map(|key| key.to_cursor());
        let lines = keys.iter().filter_map(|key| self.entries.get(&key.id));
        (lines.map(|entry| entry.line.clone()).collect(), next)
    }

    /// The ended job that follows `after`, the oldest first.
    pub(super) fn next_ended(&self, after: Option<&EndedKey>) -> Option<EndedKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ended.range((from, Bound::Unbounded)).next().cloned()
    }

    /// The job that ended last.
    pub(super) fn last_ended(&self) -> Option<JobId> {
        self.ended.last().map(|(_, id)| id.clone())
    }

    /// The jobs on the disk that are not indexed, and the indexed jobs that are not on the disk,
    /// except ours.
    pub(super) fn differences(&self, there: &HashSet<JobId>) -> (Vec<JobId>, Vec<JobId>) {
        let new = there.iter().filter(|id| !self.entries.contains_key(id));
        let known = self.entries.iter().filter(|(_, entry)| entry.hold != Hold::Ours);
        let gone = known.map(|(id, _)| id).filter(|id| !there.contains(id));
        (new.cloned().collect(), gone.cloned().collect())
    }

    /// Removes a job that is no longer on the disk, except ours.
    pub(super) fn remove_unless_ours(&mut self, id: &JobId) {
        if self.entries.get(id).is_some_and(|entry| entry.hold != Hold::Ours) {
            self.remove(id);
        }
    }
}

fn ended(entry: &IndexEntry) -> Option<EndedKey> {
    let at = entry.line.finished_at.clone().filter(|_| entry.hold == Hold::Over)?;
    Some((at, entry.line.job_id.clone()))
}

/// The greatest id.
fn last_name() -> JobId {
    JobId::parse(&"z".repeat(128)).unwrap_or_else(|_| JobId::random())
}

/// A directory that changed more recently may change again without a new time.
const TIME_STEP: Duration = Duration::from_secs(1);

/// The state of `runs` that the index knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunsState {
    pub(super) changed_at: SystemTime,
    pub(super) looked_at: SystemTime,
}

impl RunsState {
    /// Whether `runs`, last changed at `changed_at`, is still in this state.
    pub(super) fn is_current(self, changed_at: SystemTime) -> bool {
        let age = self.looked_at.duration_since(changed_at);
        self.changed_at == changed_at && age.is_ok_and(|age| age > TIME_STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, order: u64, status: JobStatus) -> IndexEntry {
        let line = JobLine {
            job_id: JobId::parse(id).unwrap(),
            status,
            queued_at: String::new(),
            started_at: None,
            finished_at: status.is_terminal().then(|| format!("{order:09}")),
        };
        let hold = if status.is_terminal() { Hold::Over } else { Hold::Ours };
        IndexEntry { line, order, bytes: 10, hold, idempotency: None }
    }

    fn names(lines: &[JobLine]) -> Vec<&str> {
        lines.iter().map(|line| line.job_id.as_str()).collect()
    }

    #[test]
    fn pages_continue_while_jobs_come_and_go() {
        let mut index = Index::default();
        for (id, order) in [("a", 1), ("b", 2), ("c", 2), ("d", 3), ("e", 4)] {
            index.put(entry(id, order, JobStatus::Completed));
        }
        let (first, cursor) = index.page(None, 2, None);
        assert_eq!(names(&first), ["e", "d"]);
        let key = Key::parse(&cursor.unwrap()).unwrap();
        // A new job comes before the page, and the job of the cursor may be removed.
        index.put(entry("f", 5, JobStatus::Queued));
        index.remove(&JobId::parse("d").unwrap());
        let (second, cursor) = index.page(None, 2, Some(&key));
        assert_eq!(names(&second), ["c", "b"]);
        let (last, cursor) = index.page(None, 2, Key::parse(&cursor.unwrap()).as_ref());
        assert_eq!((names(&last), cursor), (vec!["a"], None));
    }

    #[test]
    fn a_page_of_one_state_holds_that_state_only_and_follows_its_changes() {
        let mut index = Index::default();
        for (id, order) in [("a", 1), ("b", 2), ("c", 3), ("zzz", u64::MAX)] {
            index.put(entry(id, order, JobStatus::Queued));
        }
        index.put(entry("b", 2, JobStatus::Failed));
        index.put(entry("c", 3, JobStatus::Completed));
        let of = |status| index.page(Some(status), 10, None);
        assert_eq!(names(&of(JobStatus::Queued).0), ["zzz", "a"]);
        assert_eq!(names(&of(JobStatus::Failed).0), ["b"]);
        assert_eq!(names(&of(JobStatus::Canceled).0), [""; 0]);
        assert_eq!(index.page(None, 4, None).1, None, "there is no page after the last job");
        assert_eq!((index.len(), index.bytes()), (4, 40));
        let (_, cursor) = index.page(Some(JobStatus::Queued), 1, None);
        let key = Key::parse(&cursor.unwrap());
        assert_eq!(names(&index.page(Some(JobStatus::Queued), 1, key.as_ref()).0), ["a"]);
    }

    #[test]
    fn only_a_returned_cursor_is_parsed() {
        let key = Key { order: 7, id: JobId::parse("a.b").unwrap() };
        assert_eq!(Key::parse(&key.to_cursor()), Some(key));
        for bad in ["", "7.a", "0000000000000007", "0000000000000007.", "000000000000000g.a"] {
            assert_eq!(Key::parse(bad), None, "{bad:?}");
        }
    }
}
