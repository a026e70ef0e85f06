//! Bases on disk, for later processes.
//!
//! `<cache>/bases/<digest>/` holds `manifest` and `contents`, the files of a base as
//! [`cofferdam_tree::saved`] writes them, and `base.json`. An entry is made under another name and
//! renamed: it is whole or absent. Nothing is flushed to the disk: what a loss of power has torn is noticed
//! by its digests.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::contents::{ContentsReader, ContentsWriter};
use super::kept::{Base, is_young};
use crate::evaluation::cache::{PART, remove, touch};
use crate::evaluation::trees::{EvaluationTrees, FrozenFiles};
use cofferdam_core::SetupFailure;
use cofferdam_core::values::digest::sha256_of;
use cofferdam_sandbox::engine::DiskSpace;
use cofferdam_tree::StopCheck;
use cofferdam_tree::saved::{ManifestReader, SaveOptions, SavedTreeError, restore_tree, save_tree};

const RECORD: &str = "base.json";
const MANIFEST: &str = "manifest";
const CONTENTS: &str = "contents";
/// Bytes of the digest at the end of a manifest.
const MANIFEST_DIGEST_BYTES: i64 = 32;
/// The most bytes of a record.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Bytes that are read or written at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The bases in one directory.
#[derive(Debug)]
pub struct SavedBases {
    directory: PathBuf,
}

/// What `base.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BaseRecord {
    /// The digest of all that the base was made of.
    key: String,
    base_commit: String,
    /// Seconds since 1970.
    made_at: u64,
    /// The digest that the manifest ends with.
    manifest: String,
    contents_bytes: u64,
}

/// Why a base is not saved, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum SavedBaseError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Its files.
    #[error(transparent)]
    Tree(#[from] SavedTreeError),
    /// Its file system.
    #[error(transparent)]
    System(#[from] SetupFailure),
}

impl SavedBases {
    /// Those in `directory`, which is made with the first.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where the base with that digest is.
    pub fn place(&self, digest: &str) -> PathBuf {
        self.directory.join(digest.replace(':', "-"))
    }

    /// Whether a base with that digest exists that has not expired. [`Self::restore`] can still find it broken.
    pub fn has(&self, digest: &str, now: SystemTime) -> bool {
        read_record(&self.place(digest), digest).is_ok_and(|record| is_young(record.time(), now))
    }

    /// Restores the files of the base with that digest, in `room`. Returns `None` if it does not exist or has
    /// expired. A broken one is removed.
    pub fn restore(
        &self,
        digest: &str,
        (trees, room): (&EvaluationTrees, DiskSpace),
        stop: StopCheck<'_>,
    ) -> Option<Base> {
        let place = self.place(digest);
        if !place.exists() {
            return None;
        }
        let restored = read_record(&place, digest).and_then(|record| {
            if !is_young(record.time(), SystemTime::now()) {
                return Err(io::Error::other("too old").into());
            }
            let files = restore_files(&place, &record, (trees, room), stop)?;
            let (made_at, base_commit) = (record.time(), record.base_commit);
            let digest = digest.to_owned();
            Ok(Base { files, base_commit, digest, made_at, install_failure: None })
        });
        match restored {
            Ok(base) => {
                touch(&place);
                Some(base)
            }
            Err(_) if (stop.0)() => None,
            Err(error) => {
                log::warn!("{}: made anew: {error}", place.display());
                self.discard(digest);
                None
            }
        }
    }

    /// Saves a base of at most `bytes_max` bytes, in place of one with its digest.
    ///
    /// # Errors
    /// It cannot be written, or the work was stopped. Nothing is left of it.
    pub fn save(
        &self,
        base: &Base,
        bytes_max: u64,
        stop: StopCheck<'_>,
    ) -> Result<(), SavedBaseError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let part = self.directory.join(format!("{}.{PART}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&part)?;
        let place = self.place(&base.digest);
        let saved = write(&part, base, bytes_max, stop).and_then(|()| {
            self.discard(&base.digest);
            // Another process may have been faster: its base is as good.
            fs::rename(&part, &place).or_else(|error| {
                if place.join(RECORD).exists() { fs::remove_dir_all(&part) } else { Err(error) }
            })?;
            Ok(())
        });
        if saved.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        saved
    }

    fn discard(&self, digest: &str) {
        match remove(&self.place(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("{}: {error}", self.place(digest).display());
            }
            _ => {}
        }
    }
}

impl BaseRecord {
    fn time(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.made_at)).unwrap_or(UNIX_EPOCH)
    }
}

/// The record of an entry: a line of JSON, and a line with its digest.
fn read_record(place: &Path, digest: &str) -> Result<BaseRecord, SavedBaseError> {
    let mut text = String::new();
    File::open(place.join(RECORD))?.take(RECORD_BYTES_MAX).read_to_string(&mut text)?;
    let broken = |words: &str| io::Error::new(io::ErrorKind::InvalidData, words.to_owned());
    let (json, sum) = text.split_once('\n').ok_or_else(|| broken("a record without its digest"))?;
    if sum != format!("{}\n", sha256_of(json.as_bytes())) {
        return Err(broken("a record that has changed").into());
    }
    let record: BaseRecord = serde_json::from_str(json).map_err(io::Error::from)?;
    if record.key == digest { Ok(record) } else { Err(broken("the record of another").into()) }
}

fn restore_files(
    place: &Path,
    record: &BaseRecord,
    (trees, room): (&EvaluationTrees, DiskSpace),
    stop: StopCheck<'_>,
) -> Result<FrozenFiles, SavedBaseError> {
    let mut manifest = File::open(place.join(MANIFEST))?;
    let broken = |words: &str| io::Error::new(io::ErrorKind::InvalidData, words.to_owned());
    if manifest_digest(&mut manifest)? != record.manifest {
        return Err(broken("the manifest of another").into());
    }
    let contents = File::open(place.join(CONTENTS))?;
    if contents.metadata()?.len() != record.contents_bytes {
        return Err(broken("contents of another length").into());
    }
    let mut source = ContentsReader::new(BufReader::with_capacity(BUFFER_BYTES, contents));
    let tree = trees.create(room)?;
    restore_tree(tree.root(), manifest, &mut source, tree.owner(), stop)?;
    if source.bytes() != record.contents_bytes {
        return Err(broken("contents that the manifest does not name").into());
    }
    Ok(tree.freeze(stop)?)
}

/// The digest at the end of a manifest, which is at its beginning afterwards.
fn manifest_digest(manifest: &mut File) -> io::Result<String> {
    let mut digest = Vec::new();
    manifest.seek(SeekFrom::End(-MANIFEST_DIGEST_BYTES))?;
    manifest.read_to_end(&mut digest)?;
    manifest.rewind()?;
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the three files of an entry to the directory `part`.
fn write(
    part: &Path,
    base: &Base,
    bytes_max: u64,
    stop: StopCheck<'_>,
) -> Result<(), SavedBaseError> {
    let view = base.files.view()?;
    let contents = BufWriter::with_capacity(BUFFER_BYTES, create(&part.join(CONTENTS))?);
    let mut contents = ContentsWriter::new(contents, bytes_max);
    let mut manifest = create(&part.join(MANIFEST))?;
    let mut output = BufWriter::new(&manifest);
    // Nothing is ever compared with these states of files.
    let (life, frozen_at) = ([0; 16], i64::MIN);
    let previous: Option<ManifestReader<File>> = None;
    let options = SaveOptions { previous, life, frozen_at, stop };
    save_tree(view.tree().as_fd(), &mut output, &mut contents, options)?;
    output.flush()?;
    drop(output);
    let made_at = base.made_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let record = BaseRecord {
        key: base.digest.clone(),
        base_commit: base.base_commit.clone(),
        made_at,
        manifest: manifest_digest(&mut manifest)?,
        contents_bytes: contents.end()?,
    };
    let json = serde_json::to_string(&record).map_err(io::Error::from)?;
    let sum = sha256_of(json.as_bytes());
    create(&part.join(RECORD))?.write_all(format!("{json}\n{sum}\n").as_bytes())?;
    Ok(())
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}
