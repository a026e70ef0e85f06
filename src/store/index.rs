//! What is known of every job without looking at the disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use cofferdam_core::job::{Idempotency, JobId, JobLine, JobStatus};

/// The most jobs of one page.
pub(super) const PAGE_JOBS_MAX: usize = 1000;

/// A job's place among all: by when it was taken, and by name among those of one moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    order: u64,
    id: JobId,
}

impl Key {
    /// As it is handed out.
    fn to_cursor(&self) -> String {
        format!("{:016x}.{}", self.order, self.id)
    }

    /// What was handed out.
    pub(super) fn parse(cursor: &str) -> Option<Self> {
        let (order, id) = cursor.split_once('.').filter(|(order, _)| order.len() == 16)?;
        let order = u64::from_str_radix(order, 16).ok()?;
        Some(Self { order, id: JobId::parse(id).ok()? })
    }
}

/// Who has a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// A record of this opening of the store.
    Ours,
    /// Another opening, or nobody any more: its file tells.
    Unowned,
    /// Nobody: it is over.
    Over,
}

/// One job.
#[derive(Debug, Clone)]
pub(super) struct IndexEntry {
    pub(super) line: JobLine,
    pub(super) order: u64,
    /// What its record takes on the disk; zero while it is not over.
    pub(super) bytes: u64,
    pub(super) hold: Hold,
    /// By what a client may ask for it again.
    pub(super) idempotency: Option<Idempotency>,
}

/// When a job was over, and its name.
pub(super) type EndedKey = (String, JobId);

/// Every job, by name and in order.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<JobId, IndexEntry>,
    ordered: BTreeSet<Key>,
    by_status: BTreeSet<(JobStatus, Key)>,
    unowned: BTreeSet<JobId>,
    /// Those that are over, by when they were.
    ended: BTreeSet<EndedKey>,
    /// The last job of each key.
    by_idempotency: HashMap<String, JobId>,
    bytes: u64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the records of all jobs that are over take.
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

    /// The jobs of which only their files tell.
    pub(super) fn unowned(&self) -> Vec<JobId> {
        self.unowned.iter().cloned().collect()
    }

    /// Takes a job in, or what is new of it.
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

    /// Whoever had it has let go of it before it was over.
    pub(super) fn release(&mut self, id: &JobId) {
        if let Some(entry) = self.entries.get_mut(id) {
            if let Some(ended) = ended(entry) {
                self.ended.remove(&ended);
            }
            entry.hold = Hold::Unowned;
            self.unowned.insert(id.clone());
        }
    }

    /// At most `limit` jobs, the newest first, of those before `after`, and where to go on.
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
                // No key is as high as that of a time that never comes.
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

    /// The job that has been over for longest, of those after `after`.
    pub(super) fn next_ended(&self, after: Option<&EndedKey>) -> Option<EndedKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ended.range((from, Bound::Unbounded)).next().cloned()
    }

    /// The job that was over last.
    pub(super) fn last_ended(&self) -> Option<JobId> {
        self.ended.last().map(|(_, id)| id.clone())
    }

    /// What is in `there` alone, and what is not in it and not ours.
    pub(super) fn differences(&self, there: &HashSet<JobId>) -> (Vec<JobId>, Vec<JobId>) {
        let new = there.iter().filter(|id| !self.entries.contains_key(id));
        let known = self.entries.iter().filter(|(_, entry)| entry.hold != Hold::Ours);
        let gone = known.map(|(id, _)| id).filter(|id| !there.contains(id));
        (new.cloned().collect(), gone.cloned().collect())
    }

    /// Forgets a job that is not on the disk any more.
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

/// The greatest name there is.
fn last_name() -> JobId {
    JobId::parse(&"z".repeat(128)).unwrap_or_else(|_| JobId::random())
}

/// A directory that was changed so recently may change again without a new time.
const TIME_STEP: Duration = Duration::from_secs(1);

/// The state of `runs` that the index knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunsState {
    pub(super) changed_at: SystemTime,
    pub(super) looked_at: SystemTime,
}

impl RunsState {
    /// Whether `runs`, last changed at `changed_at`, holds what it held then.
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
    fn pages_follow_each_other_though_jobs_come_and_go() {
        let mut index = Index::default();
        for (id, order) in [("a", 1), ("b", 2), ("c", 2), ("d", 3), ("e", 4)] {
            index.put(entry(id, order, JobStatus::Completed));
        }
        let (first, cursor) = index.page(None, 2, None);
        assert_eq!(names(&first), ["e", "d"]);
        let key = Key::parse(&cursor.unwrap()).unwrap();
        // What is new comes before the page, and the cursor's own job may go.
        index.put(entry("f", 5, JobStatus::Queued));
        index.remove(&JobId::parse("d").unwrap());
        let (second, cursor) = index.page(None, 2, Some(&key));
        assert_eq!(names(&second), ["c", "b"]);
        let (last, cursor) = index.page(None, 2, Key::parse(&cursor.unwrap()).as_ref());
        assert_eq!((names(&last), cursor), (vec!["a"], None));
    }

    #[test]
    fn a_page_of_one_state_holds_that_state_alone_and_follows_its_changes() {
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
    fn only_what_was_handed_out_is_a_cursor() {
        let key = Key { order: 7, id: JobId::parse("a.b").unwrap() };
        assert_eq!(Key::parse(&key.to_cursor()), Some(key));
        for bad in ["", "7.a", "0000000000000007", "0000000000000007.", "000000000000000g.a"] {
            assert_eq!(Key::parse(bad), None, "{bad:?}");
        }
    }
}
