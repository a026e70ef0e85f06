//! Removes the entries of a cache that were not used for the longest time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

/// The end of the name of an entry that is being removed.
const GONE: &str = "gone";
/// The end of the name of an entry that is being made.
pub const PART: &str = "part";
/// What is still being made or removed after this time is left by a process that is gone.
const LEFTOVER_AGE: Duration = Duration::from_hours(24);

/// The most entries that one look at a cache considers.
const ENTRIES_MAX: usize = 100_000;

/// An entry of a cache: a file, or a directory with all that is in it.
#[derive(Debug)]
struct CacheEntry {
    /// The number of its cache.
    cache: usize,
    path: PathBuf,
    bytes: u64,
    used_at: SystemTime,
}

/// Marks the entry at `path` as used now.
pub fn touch(path: &Path) {
    let touched = File::open(path).and_then(|entry| entry.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        log::debug!("{}: {error}", path.display());
    }
}

/// Removes entries of the directories `caches`, the least recently used first, until all together have at
/// most `bytes_max` bytes. Entries for which `is_in_use` holds stay. Returns the bytes that each cache has left.
///
/// # Errors
/// A directory cannot be read.
pub fn evict(
    caches: &[PathBuf],
    bytes_max: u64,
    is_in_use: impl Fn(&Path) -> bool,
) -> io::Result<Vec<u64>> {
    let (mut entries, mut left) = (Vec::new(), vec![0_u64; caches.len()]);
    for (number, cache) in caches.iter().enumerate() {
        list((number, cache), &mut entries)?;
    }
    entries.sort_by_key(|entry| entry.used_at);
    for CacheEntry { cache, bytes, .. } in &entries {
        if let Some(left) = left.get_mut(*cache) {
            *left = left.saturating_add(*bytes);
        }
    }
    let now = SystemTime::now();
    for entry in &entries {
        let total = left.iter().copied().fold(0, u64::saturating_add);
        let path = &entry.path;
        if (total <= bytes_max && !entry.is_leftover(now)) || is_in_use(path) {
            continue;
        }
        match (remove(path), left.get_mut(entry.cache)) {
            (Ok(()), Some(left)) => *left = left.saturating_sub(entry.bytes),
            (Ok(()), None) => {}
            (Err(error), _) => log::warn!("{}: {error}", path.display()),
        }
    }
    Ok(left)
}

impl CacheEntry {
    fn is_leftover(&self, now: SystemTime) -> bool {
        let extension = self.path.extension().unwrap_or_default();
        let age = now.duration_since(self.used_at).unwrap_or_default();
        (extension == GONE || extension == PART) && age >= LEFTOVER_AGE
    }
}

/// Removes the entry at `path`, first under another name: an entry is whole or absent.
///
/// # Errors
/// It is not there, or cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    let gone = path.with_extension(format!("{}.{GONE}", Uuid::new_v4().simple()));
    fs::rename(path, &gone)?;
    if gone.is_dir() { fs::remove_dir_all(&gone) } else { fs::remove_file(&gone) }
}

fn list((number, cache): (usize, &Path), entries: &mut Vec<CacheEntry>) -> io::Result<()> {
    let found = match fs::read_dir(cache) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    for entry in found.take(ENTRIES_MAX) {
        let entry = entry?;
        // One that another removes meanwhile is no entry any more.
        let Ok(metadata) = entry.metadata() else { continue };
        let used_at = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let path = entry.path();
        let bytes = if metadata.is_dir() { bytes_below(&path) } else { metadata.len() };
        entries.push(CacheEntry { cache: number, path, bytes, used_at });
    }
    Ok(())
}

/// The bytes of the files below `directory`. Those that cannot be read count as none.
fn bytes_below(directory: &Path) -> u64 {
    let mut pending = vec![directory.to_owned()];
    let mut bytes = 0_u64;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten().take(ENTRIES_MAX) {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => pending.push(entry.path()),
                Ok(metadata) => bytes = bytes.saturating_add(metadata.len()),
                Err(_) => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entries_go_first_and_one_in_use_stays() {
        let cache = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(1000);
        for (age, name) in ["used", "oldest", "older", "newest"].into_iter().enumerate() {
            let directory = cache.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("x"), [0; 100]).unwrap();
            let time = long_ago + Duration::from_secs(u64::try_from(age).unwrap());
            File::open(&directory).unwrap().set_modified(time).unwrap();
        }
        let in_use = |path: &Path| path.ends_with("used");
        let left = || {
            let names = fs::read_dir(cache.path()).unwrap();
            let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let caches = [cache.path().to_owned(), cache.path().join("absent")];
        assert_eq!(evict(&caches, 400, in_use).unwrap(), [400, 0]);
        assert_eq!(left().len(), 4);
        assert_eq!(evict(&caches, 399, in_use).unwrap(), [300, 0]);
        assert_eq!(left(), ["newest", "older", "used"]);
        touch(&cache.path().join("older"));
        evict(&caches, 200, in_use).unwrap();
        assert_eq!(left(), ["older", "used"]);
        evict(&caches, 0, in_use).unwrap();
        assert_eq!(left(), ["used"]);
    }

    #[test]
    fn what_a_process_that_is_gone_has_left_is_removed_even_if_there_is_room() {
        let cache = tempfile::tempdir().unwrap();
        for (hours, name) in [(25, "a.part"), (25, "b.1.gone"), (23, "c.part"), (25, "whole")] {
            let file = File::create(cache.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_hours(hours)).unwrap();
        }
        evict(&[cache.path().to_owned()], u64::MAX, |_| false).unwrap();
        let names = fs::read_dir(cache.path()).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["c.part", "whole"]);
    }
}
