//! The skills of a service.

use std::io::Read;
use std::sync::Arc;

use nix::errno::Errno;
use serde::Serialize;

use super::incoming::IncomingSkill;
use super::sweep::{INCOMING, SKILLS};
use crate::store::ReadFault;
use crate::workspace::disk::engine_dir::LazyEngineDir;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::error::engine_error;
use cofferdam_tree::files::{ArchiveLimits, Spool};

/// The digits of a digest.
const DIGEST_DIGITS: usize = 64;
/// What an archive may take besides the contents of its files: their names and sizes.
const HEADERS_BYTES_MAX: u64 = 64 << 20;

/// The skills of a service, in the directory of its engine.
#[derive(Debug, Clone)]
pub struct SkillStore {
    directory: Arc<LazyEngineDir>,
}

/// A stored skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredSkill {
    /// The digest of its files, 64 hexadecimal digits.
    pub digest: String,
    /// The number of its files.
    pub files: u64,
    /// Whether it was not stored before.
    #[serde(skip)]
    pub is_new: bool,
}

impl SkillStore {
    /// The skills in `directory`.
    pub fn new(directory: Arc<LazyEngineDir>) -> Self {
        Self { directory }
    }

    /// Stores the archive that `source` gives, if its files have this digest. It is received and judged as a whole
    /// first.
    ///
    /// # Errors
    /// The digest is another one, the archive is not safe or too long, or the store has no room.
    pub fn save(
        &self,
        digest: &str,
        source: &mut dyn Read,
        limits: ArchiveLimits,
    ) -> Result<StoredSkill, EngineError> {
        check_digest(digest)?;
        let directory = self.directory.get()?;
        let (skills, received) = (directory.child(SKILLS)?, directory.child(INCOMING)?);
        let quota = directory.quota();
        let bytes_max = limits.bytes_max.saturating_add(HEADERS_BYTES_MAX);
        let mut incoming = IncomingSkill::receive(&received, quota, source, bytes_max)?;
        let found = incoming.digest(quota, limits)?;
        if found.digest != digest {
            let words = "the files of the archive have another digest";
            let error = EngineError::new(EngineCode::SkillDigestMismatch, words);
            return Err(error.with("digest", found.digest));
        }
        let stored = |is_new| StoredSkill { digest: found.digest, files: found.files, is_new };
        match received.move_to(&incoming.name, &skills, digest) {
            Ok(()) => std::mem::replace(&mut incoming.room, quota.reservation()).keep(),
            Err(Errno::EEXIST) => return Ok(stored(false)),
            Err(errno) => return Err(skills.error("rename", digest, errno).into()),
        }
        skills.sync()?;
        Ok(stored(true))
    }

    /// The archive of a stored skill.
    ///
    /// # Errors
    /// No skill has this digest.
    pub fn open(&self, digest: &str) -> Result<Spool, EngineError> {
        check_digest(digest)?;
        let skills = self.directory.get()?.child(SKILLS)?;
        let (file, _) = skills.open_file(digest).map_err(|fault| match fault {
            ReadFault::Absent => {
                EngineError::new(EngineCode::SkillNotFound, "no such skill").with("digest", digest)
            }
            fault => fault.at(skills.path_of(digest)).into(),
        })?;
        Spool::of(file).map_err(engine_error)
    }
}

fn check_digest(digest: &str) -> Result<(), EngineError> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digest.len() == DIGEST_DIGITS && digest.bytes().all(is_digit) {
        return Ok(());
    }
    let words = format!("want {DIGEST_DIGITS} hexadecimal digits in lower case");
    Err(EngineError::invalid("digest", words))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;

    /// An archive without entries, and the digest of no files.
    const EMPTY: (&[u8], &str) =
        (&[0; 1024], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");

    #[test]
    fn a_skill_is_stored_once_counts_and_is_there_after_a_restart() {
        let parent = tempdir().unwrap();
        let path = parent.path().join("engine");
        let open = || Arc::new(LazyEngineDir::new(path.clone(), 1 << 20));
        let directory = open();
        let store = SkillStore::new(Arc::clone(&directory));
        let (archive, digest) = EMPTY;
        let save = |store: &SkillStore, digest: &str, mut archive: &[u8]| {
            store.save(digest, &mut archive, ArchiveLimits::default())
        };
        assert_eq!(store.open(digest).unwrap_err().code, EngineCode::SkillNotFound);
        assert!(save(&store, digest, archive).unwrap().is_new);
        assert!(!save(&store, digest, archive).unwrap().is_new);
        let other = "0".repeat(64);
        let mismatch = save(&store, &other, archive).unwrap_err();
        assert_eq!(mismatch.code, EngineCode::SkillDigestMismatch);
        assert_eq!(mismatch.details["digest"], digest);
        assert_eq!(
            save(&store, &other, b"no archive").unwrap_err().code,
            EngineCode::ArchiveUnsafe
        );
        for bad in ["", "..", &digest.to_uppercase(), &digest[1..], &format!("{digest}0")] {
            assert_eq!(store.open(bad).unwrap_err().details["path"], "digest", "{bad}");
        }
        let used = || directory.get().unwrap().quota().used();
        assert_eq!(used(), 4096);
        assert_eq!(fs::read_dir(path.join(INCOMING)).unwrap().count(), 0);
        drop((store, directory));
        fs::create_dir_all(path.join(INCOMING).join("x.tree/d")).unwrap();
        fs::write(path.join(INCOMING).join("x"), "torn").unwrap();
        let directory = open();
        assert!(SkillStore::new(Arc::clone(&directory)).open(digest).is_ok());
        assert_eq!(directory.get().unwrap().quota().used(), 4096);
        assert_eq!(fs::read_dir(path.join(INCOMING)).unwrap().count(), 0);
    }

    #[test]
    fn a_skill_that_does_not_fit_leaves_nothing() {
        let parent = tempdir().unwrap();
        let directory = Arc::new(LazyEngineDir::new(parent.path().join("engine"), 4095));
        let store = SkillStore::new(Arc::clone(&directory));
        let (mut archive, digest) = EMPTY;
        let full = store.save(digest, &mut archive, ArchiveLimits::default());
        assert_eq!(full.unwrap_err().code, EngineCode::StoreFull);
        assert_eq!(directory.get().unwrap().quota().used(), 0);
        assert_eq!(store.open(digest).unwrap_err().code, EngineCode::SkillNotFound);
    }
}
