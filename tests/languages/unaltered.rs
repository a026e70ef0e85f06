//! No run reads what another run has written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cofferdam_test_server::service::Service;
use cofferdam_test_server::shipped::{self, CACHE, read};
use serde_json::{Value, json};

use crate::queue::{Case, run_all};

/// Tries to write to every file and into every directory. Returns where it succeeded outside its
/// own file systems, and corrupts those.
const VANDAL: &str = r#"
import os, stat

OWN = os.stat("/tmp").st_dev

def attempt(path, flags):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK, 0o666))
        return [path]
    except OSError:
        return []

def solution():
    written, tried = [], 0
    for folder, folders, files in os.walk("/"):
        if folder in ("/proc", "/dev", "/workspace"):
            folders.clear()
            continue
        made = attempt(os.path.join(folder, "left-behind"), os.O_CREAT | os.O_WRONLY)
        if os.lstat(folder).st_dev == OWN:
            continue
        written += made
        for name in files:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                tried += 1
                written += attempt(path, os.O_WRONLY | os.O_APPEND)
    for folder in ("/workspace", "/workspace/check"):
        attempt(os.path.join(folder, "left-behind"), os.O_CREAT | os.O_WRONLY)
    for path in ("/workspace/checker.py", "/workspace/Makefile"):
        with open(path, "a") as file:
            file.write("syntax error!")
    return {"written": written, "tried": tried > 1000, "spoiled": os.path.exists("/tmp/left-behind")}
"#;

/// Looks for these changes in a later run.
const NEXT: &str = r#"
import os

def solution():
    left = [folder for folder, folders, files in os.walk("/")
            if "left-behind" in files and not folder.startswith("/proc")]
    return {"left": left, "spoiled": "syntax error!" in open("/workspace/checker.py").read()}
"#;

#[test]
fn a_run_cannot_change_the_input_of_the_next() {
    let service = shipped::setup().start();
    let languages = shipped::available(&service);
    let (caches, workspaces) = places();
    let before = (contents(&caches), contents(&workspaces));
    assert!(!before.1.is_empty(), "no workspaces");
    // A root of languages that compile nothing in advance has none.
    let caching = |slug: &String| read(&format!("langs/{slug}/Makefile")).contains(CACHE);
    let has_caches = shipped::rootfs().is_some() && languages.keys().any(caching);
    assert!(!before.0.is_empty() || !has_caches, "no caches in the root");

    assert_eq!(
        value_of(&service, VANDAL),
        json!({ "written": [], "tried": true, "spoiled": true })
    );
    assert_eq!(value_of(&service, NEXT), json!({ "left": [], "spoiled": false }));
    // Languages that use a cache do not write to it either.
    let cases = languages.iter().map(|(slug, language)| {
        let name = "good".to_owned();
        Case { slug, language, name }
    });
    run_all(&service, cases.collect());
    assert!(before == (contents(&caches), contents(&workspaces)), "caches or workspaces changed");
}

/// The return value of a Python solution without arguments.
#[track_caller]
fn value_of(service: &Service, solution: &str) -> Value {
    let answer = service.post(&json!({
        "lang_slug": "python",
        "solution_text": solution,
        "asserts": r#"{"arguments":[[]]}"#,
        "timeout": "1m",
    }));
    let items: Value = serde_json::from_str(&answer.finished().stdout).unwrap();
    assert_eq!(items[0]["type"], "result", "{answer:?}");
    items[0]["value"].clone()
}

fn places() -> (PathBuf, PathBuf) {
    let root = shipped::rootfs().unwrap_or_else(|| PathBuf::from("/"));
    (root.join(CACHE), shipped::repository().join("langs"))
}

/// The metadata that shows a change of a file.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
}

/// Every file and directory below `top`, without following links; empty if `top` is missing.
fn contents(top: &Path) -> BTreeMap<PathBuf, Look> {
    let mut found = BTreeMap::new();
    let mut unread = vec![top.to_owned()];
    while let Some(directory) = unread.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                unread.push(entry.path());
            }
            let look = Look {
                inode: metadata.ino(),
                bytes: metadata.len(),
                mode: metadata.mode(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            };
            found.insert(entry.path(), look);
        }
    }
    found
}
