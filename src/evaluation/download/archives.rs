//! The archives in the cache.
//!
//! `<key>/` is for one URL of one owner: `<digest>` is the archive that it had last, and `record.json` what
//! the server says it is the same by.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::client::{DOWNLOAD_MAX, DownloadAnswer, DownloadClient, Validators};
use super::error::DownloadError;
use crate::egress::EgressTerms;
use crate::evaluation::cache::{CacheKind, CacheSpace, Making, WaitEnded, is_raised, touch};
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::sha256_of;

const RECORD: &str = "record.json";
/// How often one that waits for a download looks whether it was cancelled.
const DOWNLOAD_POLL: Duration = Duration::from_millis(100);

/// What holds for every download.
#[derive(Debug)]
pub struct ArchivesSettings {
    /// What may be reached.
    pub egress: EgressTerms,
    /// The caches on disk.
    pub cache: Arc<CacheSpace>,
    /// The most bytes of one archive.
    pub archive_bytes_max: u64,
    /// How long one download may take; 120 s if it is `None`.
    pub timeout: Option<Duration>,
}

/// What is asked for.
pub struct ArchiveRequest<'a> {
    /// Whose cache is used: the name of a token, or one for all.
    pub owner: &'a str,
    /// The URL.
    pub url: &'a WebUrl,
    /// The digest that it has to have, 64 hexadecimal digits in lower case.
    pub sha256: Option<&'a str>,
    /// Whether nothing that was kept is used.
    pub fresh: bool,
    /// Cancels it.
    pub cancel: &'a CancelToken,
    /// When it has to be over.
    pub deadline: Deadline,
}

/// An archive.
#[derive(Debug)]
pub struct FetchedArchive {
    /// It, open to be read. It stays as it is while this is open.
    pub file: File,
    /// Its digest, 64 hexadecimal digits.
    pub sha256: String,
    /// Whether it was there before.
    pub cached: bool,
}

/// Fetches archives. One service has one.
#[derive(Debug)]
pub struct Archives {
    client: Arc<DownloadClient>,
    directory: PathBuf,
    cache: Arc<CacheSpace>,
    making: Making,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptArchive {
    sha256: String,
    bytes: u64,
    validators: Validators,
}

impl Archives {
    /// Over the cache, whose directory is made with the first archive.
    pub fn new(settings: ArchivesSettings) -> Self {
        let ArchivesSettings { egress, cache, archive_bytes_max, timeout } = settings;
        let directory = cache.directory(CacheKind::Archives);
        let timeout = timeout.unwrap_or(DOWNLOAD_MAX);
        let client = Arc::new(DownloadClient::new(egress, archive_bytes_max, timeout));
        Self { client, directory, cache, making: Making::default() }
    }

    /// The archive at the URL, as the server has it now, or with the digest that is asked for.
    ///
    /// # Errors
    /// The archive is not within the bounds.
    pub fn fetch(&self, request: &ArchiveRequest<'_>) -> Result<FetchedArchive, DownloadError> {
        let key = sha256_of(format!("{}\0{}", request.owner, request.url.as_str()).as_bytes());
        let entry = self.directory.join(&key);
        let kept = || self.kept(&entry).filter(|_| !request.fresh);
        let is_wanted = |record: &KeptArchive| request.sha256 == Some(record.sha256.as_str());
        if let Some((record, file)) = kept().filter(|(record, _)| is_wanted(record)) {
            return Ok(FetchedArchive { file, sha256: record.sha256, cached: true });
        }
        let turn = self.making.enter(&key, request.cancel, request.deadline);
        let _turn = turn.map_err(|ended| match ended {
            WaitEnded::Cancelled => DownloadError::Cancelled,
            WaitEnded::Expired => DownloadError::Expired,
        })?;
        let kept = kept();
        if let Some((record, file)) = kept.as_ref().filter(|(record, _)| is_wanted(record)) {
            let file = file.try_clone().map_err(|error| cache_error(&error))?;
            return Ok(FetchedArchive { file, sha256: record.sha256.clone(), cached: true });
        }
        let known = kept.as_ref().map(|(record, _)| record.validators.clone()).unwrap_or_default();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&entry);
        made.map_err(|error| cache_error(&error))?;
        let part = PartFile::new(&entry).map_err(|error| cache_error(&error))?;
        let answer = self.wait_for(request, known, &part)?;
        let fetched = match (answer, kept) {
            (DownloadAnswer::NotModified, Some((record, file))) => {
                FetchedArchive { file, sha256: record.sha256, cached: true }
            }
            (DownloadAnswer::NotModified, None) => {
                let message = "the server answered 304".to_owned();
                return Err(DownloadError::Failed { message });
            }
            (DownloadAnswer::Archive { sha256, bytes, validators }, _) => {
                check(request, &sha256)?;
                let record = KeptArchive { sha256, bytes, validators };
                let file = publish(&entry, &part, &record).map_err(|error| cache_error(&error))?;
                FetchedArchive { file, sha256: record.sha256, cached: false }
            }
        };
        check(request, &fetched.sha256)?;
        // An archive that is open stays readable after its removal.
        self.cache.make_room(&entry);
        Ok(fetched)
    }

    /// The archive that is kept, if it is whole.
    fn kept(&self, entry: &Path) -> Option<(KeptArchive, File)> {
        let record = fs::read(entry.join(RECORD)).ok()?;
        let record: KeptArchive = serde_json::from_slice(&record).ok()?;
        let is_name = record.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        let file = File::open(entry.join(Some(&record.sha256).filter(|_| is_name)?)).ok()?;
        let is_whole = file.metadata().is_ok_and(|metadata| metadata.len() == record.bytes);
        touch(entry);
        is_whole.then_some((record, file))
    }

    /// Downloads on a thread of its own: a read that blocks keeps no one from being cancelled.
    fn wait_for(
        &self,
        request: &ArchiveRequest<'_>,
        known: Validators,
        part: &PartFile,
    ) -> Result<DownloadAnswer, DownloadError> {
        let (client, url) = (Arc::clone(&self.client), request.url.clone());
        let mut file = part.file.try_clone().map_err(|error| cache_error(&error))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (tell, told) = sync_channel(1);
        let (stop, thread) = (Arc::clone(&is_over), Builder::new().name("download".to_owned()));
        let download = move || {
            // No other request waits for it any more.
            let _ = tell.send(client.fetch(&url, &known, &mut file, &stop));
        };
        thread.spawn(download).map_err(|error| cache_error(&error))?;
        let ended = loop {
            match told.recv_timeout(DOWNLOAD_POLL) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    break DownloadError::Cache("the download ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) if is_raised(request.cancel) => {
                    break DownloadError::Cancelled;
                }
                Err(RecvTimeoutError::Timeout) if request.deadline.passed() => {
                    break DownloadError::Expired;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        is_over.store(true, Ordering::Release);
        Err(ended)
    }
}

impl fmt::Debug for ArchiveRequest<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, url, sha256, .. } = self;
        let mut out = out.debug_struct("ArchiveRequest");
        out.field("owner", owner).field("url", url).field("sha256", sha256).finish_non_exhaustive()
    }
}

fn check(request: &ArchiveRequest<'_>, found: &str) -> Result<(), DownloadError> {
    match request.sha256 {
        Some(wanted) if wanted != found => {
            Err(DownloadError::DigestMismatch { found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

/// A file that is removed again unless it is renamed.
#[derive(Debug)]
struct PartFile {
    path: PathBuf,
    file: File,
}

impl PartFile {
    fn new(entry: &Path) -> io::Result<Self> {
        let path = entry.join(format!("{}.part", Uuid::new_v4()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // It is gone if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes `part` the archive of the entry; the one before goes.
fn publish(entry: &Path, part: &PartFile, record: &KeptArchive) -> io::Result<File> {
    let path = entry.join(&record.sha256);
    fs::rename(&part.path, &path)?;
    let file = File::open(&path)?;
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    let new_record = entry.join(format!("{}.record", Uuid::new_v4()));
    fs::write(&new_record, text)?;
    File::open(&new_record)?.sync_all()?;
    fs::rename(&new_record, entry.join(RECORD))?;
    for other in fs::read_dir(entry)?.flatten() {
        let other = other.path();
        if other != path && !other.ends_with(RECORD) {
            let _ = fs::remove_file(other);
        }
    }
    Ok(file)
}

fn cache_error(error: &io::Error) -> DownloadError {
    DownloadError::Cache(error.to_string())
}
