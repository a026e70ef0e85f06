//! The shipped workspaces of `langs/` and a server that runs them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use crate::service::{Service, Setup};

/// The number of runs at the same time.
pub const CONCURRENCY: usize = 4;
/// Where `make warm` stores its output in a root file system.
pub const CACHE: &str = "opt/cofferdam/cache";

/// One language of `languages.toml`, with the keys that tests use.
#[derive(Debug, Deserialize)]
pub struct Language {
    pub folder: String,
    pub solution: String,
    pub checker: Option<String>,
    pub memory_max: Option<String>,
    pub disk_max: Option<String>,
}

/// The table of languages by slug.
pub fn table() -> BTreeMap<String, Language> {
    toml::from_str(&read("langs/languages.toml")).unwrap()
}

/// Reads a file of the repository.
#[track_caller]
pub fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The repository's directory, two levels above this crate.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The root file system of `SANDBOX_ROOTFS`, if set.
pub fn rootfs() -> Option<PathBuf> {
    std::env::var_os("SANDBOX_ROOTFS").map(PathBuf::from)
}

/// The configuration of a server with these workspaces.
pub fn setup() -> Setup {
    setup_with(&repository().join("langs"), rootfs().as_deref())
}

/// The same with the workspaces of another directory and in another root.
pub fn setup_with(langs: &Path, rootfs: Option<&Path>) -> Setup {
    let setup = Setup::inside(repository())
        .arg("--langs")
        .arg(langs)
        .env("RUN_CONCURRENCY", CONCURRENCY.to_string());
    match rootfs {
        Some(rootfs) => setup.arg("--rootfs").arg(rootfs),
        None => setup,
    }
}

/// The languages that `service` can run. Prints the others, and panics if one of [`promised`] is
/// missing.
#[track_caller]
pub fn available(service: &Service) -> BTreeMap<String, Language> {
    let (available, missing): (BTreeMap<_, _>, BTreeMap<_, _>) =
        table().into_iter().partition(|(slug, _)| is_available(service, slug));
    println!("languages run: {:?}", available.keys());
    println!("languages that cannot be run here: {:?}", missing.keys());
    let mut promised = promised();
    promised.retain(|slug| !available.contains_key(slug));
    assert!(promised.is_empty(), "not available: {promised:?}");
    assert!(!available.is_empty(), "no language at all");
    available
}

/// Whether the server accepts a run with a timeout of zero.
pub fn is_available(service: &Service, slug: &str) -> bool {
    let body =
        json!({ "lang_slug": slug, "solution_text": "", "checker_text": "", "timeout": "0s" });
    match service.post(&body).status {
        200 => true,
        503 => false,
        status => panic!("{slug}: {status}"),
    }
}

/// The languages of `LANGUAGES`, by default those that `make deps` installs on a host.
pub fn promised() -> Vec<String> {
    let of_a_host = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    let default = if of_a_host { "cpp java js php python ruby" } else { "" };
    let asked = std::env::var("LANGUAGES").unwrap_or_else(|_| default.to_owned());
    asked.split_whitespace().map(str::to_owned).collect()
}
