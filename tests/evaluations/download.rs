//! The archive of a task by its URL: what may be reached, what bounds it, and what is kept.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam::egress::{AllowList, EgressTerms};
use cofferdam::evaluation::cache::CacheSpace;
use cofferdam::evaluation::download::{
    ArchiveRequest, Archives, ArchivesSettings, DownloadError, FetchedArchive,
};
use cofferdam::evaluation::web_url::WebUrl;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::sha256_of;
use tempfile::TempDir;

/// A server of archives and a cache for them.
struct Downloads {
    process: Child,
    directory: TempDir,
    port: u16,
    archives: Archives,
}

impl Downloads {
    fn new() -> Self {
        Self::with("127.0.0.1", None)
    }

    fn with(private_host: &str, timeout: Option<Duration>) -> Self {
        let directory = TempDir::new().unwrap();
        let mut process = Command::new("python3")
            .args(["-c", include_str!("archive_server.py")])
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let private_hosts = AllowList::parse(&[private_host.to_owned()]).unwrap();
        let settings = ArchivesSettings {
            egress: EgressTerms { private_hosts, ..EgressTerms::default() },
            cache: CacheSpace::lasting(directory.path().join("cache"), 1 << 20).into(),
            archive_bytes_max: 1 << 20,
            timeout,
        };
        let archives = Archives::new(settings);
        Self { process, directory, port: line.trim().parse().unwrap(), archives }
    }

    fn fetch(&self, path: &str) -> Result<FetchedArchive, DownloadError> {
        self.fetch_as("a", path, None, false)
    }

    fn fetch_as(
        &self,
        owner: &str,
        path: &str,
        sha256: Option<&str>,
        fresh: bool,
    ) -> Result<FetchedArchive, DownloadError> {
        let url = WebUrl::parse(&format!("http://127.0.0.1:{}{path}", self.port)).unwrap();
        let cancel = CancelToken::new().unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let request = ArchiveRequest { owner, url: &url, sha256, fresh, cancel: &cancel, deadline };
        self.archives.fetch(&request)
    }

    fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.path().join("requests.log"));
        log.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Files in the cache, but those that say what an archive is.
    fn kept(&self) -> usize {
        let entries = fs::read_dir(self.directory.path().join("cache/archives")).unwrap();
        let files = entries.flat_map(|entry| fs::read_dir(entry.unwrap().path()).unwrap());
        files.filter(|file| !file.as_ref().unwrap().path().ends_with("record.json")).count()
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn text_of(mut archive: FetchedArchive) -> String {
    let mut text = String::new();
    archive.file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_archive_is_asked_for_again_by_its_etag_and_not_at_all_by_its_digest() {
    let downloads = Downloads::new();
    let first = downloads.fetch("/archive").unwrap();
    let digest = sha256_of(b"an archive");
    assert_eq!((first.sha256.as_str(), first.cached), (digest.as_str(), false));
    assert_eq!(text_of(first), "an archive");
    let second = downloads.fetch("/archive").unwrap();
    assert!(second.cached);
    assert_eq!(text_of(second), "an archive");
    let third = downloads.fetch_as("a", "/archive", Some(&digest), false);
    assert!(third.unwrap().cached);
    assert_eq!(downloads.requests(), ["/archive -", "/archive \"1\""]);
    for (owner, fresh) in [("b", false), ("a", true)] {
        assert!(!downloads.fetch_as(owner, "/archive", None, fresh).unwrap().cached);
    }
    assert_eq!(downloads.requests().len(), 4);
}

#[test]
fn an_archive_with_another_digest_is_refused_and_not_kept() {
    let downloads = Downloads::new();
    let wanted = sha256_of(b"another");
    let error = downloads.fetch_as("a", "/archive", Some(&wanted), false).unwrap_err();
    assert_eq!(error, DownloadError::DigestMismatch { found: sha256_of(b"an archive") });
    assert_eq!((error.code(), downloads.kept()), ("task.digest_mismatch", 0));
}

#[test]
fn five_redirects_are_followed_and_each_is_judged() {
    let downloads = Downloads::new();
    assert_eq!(text_of(downloads.fetch("/redirect/4").unwrap()), "an archive");
    let error = downloads.fetch("/redirect/5").unwrap_err();
    assert_eq!(error.code(), "task.download_failed");
    for (target, code) in [
        ("http://127.0.0.2:1/", "task.url_denied"),
        ("http://2130706434:1/", "task.url_denied"),
        ("http://[::ffff:127.0.0.2]:1/", "task.url_denied"),
        ("http://169.254.169.254/latest", "task.url_denied"),
        ("file:///etc/passwd", "task.download_failed"),
        ("http://user@127.0.0.1/", "task.download_failed"),
    ] {
        let error = downloads.fetch(&format!("/to?{target}")).unwrap_err();
        assert_eq!(error.code(), code, "{target}: {error}");
    }
    assert_eq!(downloads.kept(), 1);
}

#[test]
fn a_private_address_is_denied_unless_it_is_allowed() {
    let downloads = Downloads::with("10.0.0.1", None);
    let error = downloads.fetch("/archive").unwrap_err();
    assert_eq!(error.code(), "task.url_denied");
    assert!(error.to_string().contains("private_address"), "{error}");
    assert_eq!(downloads.requests(), Vec::<String>::new());
}

#[test]
fn an_archive_over_the_limit_ends_the_download_with_and_without_a_length() {
    let downloads = Downloads::new();
    for path in ["/long", "/endless"] {
        let error = downloads.fetch(path).unwrap_err();
        assert_eq!(error, DownloadError::TooLarge { bytes_max: 1 << 20 }, "{path}");
        assert_eq!((error.code(), error.limit()), ("task.too_large", Some("archive")));
    }
    let error = downloads.fetch("/absent").unwrap_err();
    assert_eq!(error.code(), "task.download_failed");
    assert!(error.to_string().contains("404"), "{error}");
    assert_eq!(downloads.kept(), 0);
}

#[test]
fn a_server_that_falls_silent_ends_the_download_and_a_cancel_ends_it_at_once() {
    let downloads = Downloads::with("127.0.0.1", Some(Duration::from_secs(2)));
    let error = downloads.fetch("/silent").unwrap_err();
    assert_eq!((error.code(), error.limit()), ("task.download_failed", Some("wall_time")));
    let downloads = Downloads::new();
    let token = CancelToken::new().unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while downloads.requests().is_empty() {
                std::thread::yield_now();
            }
            token.cancel();
        });
        let url = WebUrl::parse(&format!("http://127.0.0.1:{}/silent", downloads.port)).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let request = ArchiveRequest {
            owner: "a",
            url: &url,
            sha256: None,
            fresh: false,
            cancel: &token,
            deadline,
        };
        assert_eq!(downloads.archives.fetch(&request).unwrap_err(), DownloadError::Cancelled);
    });
    assert!(began.elapsed() < Duration::from_secs(60));
}
