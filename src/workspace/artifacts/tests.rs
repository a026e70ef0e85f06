//! Tests of the store, in one process.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tempfile::{TempDir, tempdir};

use super::*;
use crate::workspace::{EngineCode, EngineDir, EngineError, LazyEngineDir};
use cofferdam_core::values::digest::sha256_of;

const ROOM: u64 = 1 << 30;

fn open(directory: &Path, room_bytes: u64) -> (ArtifactStore, Arc<EngineDir>) {
    let directory = Arc::new(EngineDir::open(directory, room_bytes).unwrap());
    (ArtifactStore::open(Arc::clone(&directory), 1 << 20).unwrap(), directory)
}

fn new_store() -> (TempDir, ArtifactStore, Arc<EngineDir>) {
    let parent = tempdir().unwrap();
    let (store, directory) = open(parent.path(), ROOM);
    (parent, store, directory)
}

fn key(name: &str) -> ArtifactKey {
    ArtifactKey::new(ArtifactScope::default(), name).unwrap()
}

fn save(store: &ArtifactStore, name: &str, bytes: &[u8]) -> Result<u64, EngineError> {
    store.save(key(name), "text/plain", bytes).map(|saved| saved.version)
}

fn load(store: &ArtifactStore, name: &str, version: Option<u64>) -> Result<Vec<u8>, EngineCode> {
    let opened = store.open_version(&key(name), version).map_err(|error| error.code)?;
    let mut bytes = Vec::new();
    opened.file.take(opened.size_bytes).read_to_end(&mut bytes).unwrap();
    assert_eq!(sha256_of(&bytes), opened.sha256);
    Ok(bytes)
}

/// The only directory of an artifact below `directory`.
fn only_key_dir(directory: &Path) -> PathBuf {
    let only = |path: PathBuf| {
        let mut entries = fs::read_dir(path).unwrap();
        let entry = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none());
        entry
    };
    only(only(directory.join("artifacts")))
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn versions_count_from_0_and_each_keeps_its_bytes() {
    let (_parent, store, _) = new_store();
    let saved = store.save(key("a/b"), "image/png", b"zero").unwrap();
    let expected = SavedVersion {
        name: "a/b".to_owned(),
        version: 0,
        r#ref: "artifact://a/b@0".to_owned(),
        sha256: sha256_of(b"zero"),
        size_bytes: 4,
    };
    assert_eq!(saved, expected);
    assert_eq!(save(&store, "a/b", b""), Ok(1));
    assert_eq!(save(&store, "other", b"x"), Ok(0));
    assert_eq!(load(&store, "a/b", None), Ok(Vec::new()));
    assert_eq!(load(&store, "a/b", Some(0)), Ok(b"zero".to_vec()));
    assert_eq!(store.open_version(&key("a/b"), Some(0)).unwrap().mime_type, "image/png");
    assert_eq!(load(&store, "a/b", Some(2)), Err(EngineCode::ArtifactVersionNotFound));
    assert_eq!(load(&store, "missing", None), Err(EngineCode::ArtifactNotFound));
    assert_eq!(load(&store, "missing", Some(0)), Err(EngineCode::ArtifactNotFound));
}

#[test]
fn no_version_is_given_twice_after_a_deletion_or_a_restart() {
    let (parent, mut store, mut directory) = new_store();
    for round in 0..4_u64 {
        assert_eq!(save(&store, "a", b"x"), Ok(2 * round));
        assert_eq!(save(&store, "a", b"x"), Ok(2 * round + 1));
        store.delete(&key("a")).unwrap();
        store.delete(&key("a")).unwrap();
        assert_eq!(load(&store, "a", None), Err(EngineCode::ArtifactNotFound));
        assert_eq!(load(&store, "a", Some(2 * round)), Err(EngineCode::ArtifactNotFound));
        let error = store.versions(&key("a")).unwrap_err();
        assert_eq!(error.code, EngineCode::ArtifactNotFound);
        if round % 2 == 0 {
            drop((store, directory));
            (store, directory) = open(parent.path(), ROOM);
        }
    }
    assert_eq!(names_in(&only_key_dir(parent.path())), ["gone.8".to_owned()].into());
    store.delete(&key("never saved")).unwrap();
    assert_eq!(save(&store, "a", b"x"), Ok(8));
    assert_eq!(load(&store, "a", None), Ok(b"x".to_vec()));
}

#[test]
fn what_a_killed_service_left_unfinished_is_removed() {
    let (parent, store, directory) = new_store();
    for _ in 0..3 {
        save(&store, "a", b"bytes").unwrap();
    }
    let upload = store.upload(key("b"), "x/y", 0).unwrap();
    assert_eq!(names_in(&parent.path().join("artifacts-incoming")).len(), 1);
    std::mem::forget(upload.finish());
    let unfinished = parent.path().join("artifacts-incoming/unfinished");
    fs::write(&unfinished, "x").unwrap();
    drop((store, directory));
    let scope = fs::read_dir(parent.path().join("artifacts")).unwrap().next().unwrap();
    let key_dirs = fs::read_dir(scope.unwrap().path()).unwrap();
    let of_a = key_dirs.map(|entry| entry.unwrap().path()).find(|path| path.join("2").exists());
    let of_a = of_a.unwrap();
    // A deletion that was killed after its first step.
    fs::rename(of_a.join("2"), of_a.join("gone.3")).unwrap();
    fs::write(of_a.join(".key.json.new"), "half").unwrap();
    let empty = of_a.parent().unwrap().join("0".repeat(64));
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("key.json"), "{}").unwrap();
    let (store, _directory) = open(parent.path(), ROOM);
    assert!(!unfinished.exists() && !empty.exists());
    assert_eq!(names_in(&of_a), ["gone.3".to_owned()].into());
    assert_eq!(fs::metadata(of_a.join("gone.3")).unwrap().len(), 0);
    assert_eq!(load(&store, "a", None), Err(EngineCode::ArtifactNotFound));
    assert_eq!(save(&store, "a", b"x"), Ok(3));
    assert_eq!(load(&store, "b", None), Ok(Vec::new()));
}

#[test]
fn a_restart_counts_exactly_what_was_counted_before() {
    let (parent, store, directory) = new_store();
    assert_eq!(directory.quota().used(), 0);
    for (name, bytes) in [("a", 0), ("a", 4096), ("b", 100_000), ("c", 7), ("é", 1)] {
        save(&store, name, &vec![7; bytes]).unwrap();
    }
    store.delete(&key("c")).unwrap();
    store.delete(&key("b")).unwrap();
    save(&store, "b", b"again").unwrap();
    drop(store.upload(key("d"), "x/y", 0));
    let used = directory.quota().used();
    assert!(used > 4 * 4096);
    drop((store, directory));
    let (store, directory) = open(parent.path(), ROOM);
    assert_eq!(directory.quota().used(), used);
    for name in ["a", "b", "é"] {
        store.delete(&key(name)).unwrap();
    }
    let deleted = directory.quota().used();
    assert_eq!(deleted, 4096 * (1 + 4 * 2), "a directory, and a marker for each name");
}

#[test]
fn a_full_store_refuses_and_keeps_what_it_has() {
    let parent = tempdir().unwrap();
    let (store, directory) = open(parent.path(), 200_000);
    assert_eq!(save(&store, "a", &[1; 90_000]), Ok(0));
    let used = directory.quota().used();
    let error = save(&store, "a", &[2; 150_000]).unwrap_err();
    assert_eq!(error.code, EngineCode::StoreFull);
    // One that says too little is refused when its bytes arrive.
    let mut upload = store.upload(key("b"), "x/y", 0).unwrap();
    upload.write(&[3; 60_000]).unwrap();
    assert_eq!(upload.write(&[3; 60_000]).unwrap_err().code, EngineCode::StoreFull);
    drop(upload);
    assert_eq!(directory.quota().used(), used);
    assert_eq!(names_in(&parent.path().join("artifacts-incoming")), BTreeSet::new());
    assert_eq!(store.versions(&key("a")), Ok(vec![0]));
    store.delete(&key("a")).unwrap();
    assert_eq!(save(&store, "b", &[2; 150_000]), Ok(0));
}

#[test]
fn a_version_has_at_most_the_bytes_of_the_configuration() {
    let (_parent, store, directory) = new_store();
    assert_eq!(save(&store, "a", &[0; (1 << 20) + 1]).unwrap_err().code, EngineCode::TooLarge);
    let mut upload = store.upload(key("a"), "x/y", 0).unwrap();
    upload.write(&[0; 1 << 20]).unwrap();
    assert_eq!(upload.write(&[0]).unwrap_err().code, EngineCode::TooLarge);
    drop(upload);
    assert_eq!(directory.quota().used(), 0);
    for mime_type in ["", "text/plain\r\nx: y", "é", &"x".repeat(256)] {
        let error = store.upload(key("a"), mime_type, 0).unwrap_err();
        assert_eq!(error.details["path"], "Content-Type");
    }
}

#[test]
fn parallel_saves_get_different_versions_without_a_gap() {
    let (_parent, store, _) = new_store();
    let mut versions: Vec<u64> = thread::scope(|scope| {
        let saving = (0..8_u8).map(|thread| {
            let store = &store;
            scope.spawn(move || -> Vec<u64> {
                (0..10).map(|_| save(store, "a", &[thread; 100]).unwrap()).collect()
            })
        });
        let saving: Vec<_> = saving.collect();
        saving.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    versions.sort_unstable();
    assert_eq!(versions, (0..80).collect::<Vec<_>>());
    assert_eq!(store.versions(&key("a")), Ok(versions));
}

#[test]
fn a_damaged_version_is_an_error_and_the_others_are_not() {
    let (parent, store, _) = new_store();
    save(&store, "a", b"zero").unwrap();
    save(&store, "a", b"one").unwrap();
    let path = only_key_dir(parent.path());
    fs::write(path.join("0"), "zero").unwrap();
    assert_eq!(load(&store, "a", Some(0)), Err(EngineCode::IoFailed));
    assert_eq!(load(&store, "a", Some(1)), Ok(b"one".to_vec()));
    fs::remove_file(path.join("0")).unwrap();
    std::os::unix::fs::symlink("1", path.join("0")).unwrap();
    assert_eq!(load(&store, "a", Some(0)), Err(EngineCode::IoFailed));
}

#[test]
fn owners_and_sessions_do_not_see_each_other() {
    let (_parent, store, _) = new_store();
    let scopes = [["", "", "", ""], ["o", "", "", ""], ["o", "a", "", ""], ["o", "a", "u", "s"]];
    for (number, [owner, app, user, session]) in (0_u8..).zip(scopes) {
        let scope = ArtifactScope::new(owner, app, user, session).unwrap();
        let key = ArtifactKey::new(scope.clone(), "a").unwrap();
        assert_eq!(store.versions(&key).unwrap_err().code, EngineCode::ArtifactNotFound);
        assert_eq!(store.list(&scope, None, 10).unwrap(), ArtifactPage::default());
        assert_eq!(store.save(key.clone(), "x/y", &[number]).unwrap().version, 0);
        store.save(key, "x/y", &[number]).unwrap();
        let listed = store.list(&scope, None, 10).unwrap().artifacts;
        let a = ArtifactSummary { name: "a".to_owned(), latest: 1, versions: 2 };
        assert_eq!(listed, [a]);
    }
}

#[test]
fn a_list_is_ordered_and_continues_after_a_name() {
    let (_parent, store, _) = new_store();
    let all = ["B", "a", "a/b", "b", "é"];
    for name in all.iter().rev().chain(&["deleted"]) {
        save(&store, name, b"x").unwrap();
    }
    store.delete(&key("deleted")).unwrap();
    let scope = ArtifactScope::default();
    let page = |after: Option<&str>, limit| {
        let ArtifactPage { artifacts, last_name } = store.list(&scope, after, limit).unwrap();
        (artifacts.into_iter().map(|artifact| artifact.name).collect::<Vec<_>>(), last_name)
    };
    let whole: Vec<String> = all.map(str::to_owned).to_vec();
    assert_eq!(page(None, 5), (whole.clone(), None));
    let mut pages = Vec::new();
    let (mut names, mut last_name) = page(None, 2);
    loop {
        assert!(names.len() <= 2);
        pages.extend(names);
        let Some(after) = last_name else { break };
        (names, last_name) = page(Some(&after), 2);
    }
    assert_eq!(pages, whole);
}

#[test]
fn a_context_carries_the_store_and_the_session() {
    let (_parent, store, _) = new_store();
    let bare = ArtifactContext::default();
    assert!(artifact_service_from_context(&bare).is_none());
    let error = save_artifact_helper(&bare, "a", b"x", "x/y").unwrap_err();
    assert_eq!(error.message, "artifact service not in context");
    let context = with_artifact_service(bare, store);
    let session = ArtifactScope::new("", "app", "user", "session").unwrap();
    let of_session = with_artifact_session(context.clone(), session);
    assert_eq!(save_artifact_helper(&of_session, "a", b"zero", "x/y"), Ok(0));
    assert_eq!(save_artifact_helper(&of_session, "a", b"one", "x/y"), Ok(1));
    let one = LoadedArtifact { data: b"one".to_vec(), mime_type: "x/y".to_owned(), version: 1 };
    assert_eq!(load_artifact_helper(&of_session, "a", None), Ok(one));
    assert_eq!(load_artifact_helper(&of_session, "a", Some(0)).unwrap().data, b"zero");
    let error = load_artifact_helper(&context, "a", None).unwrap_err();
    assert_eq!(error.code, EngineCode::ArtifactNotFound);
}

#[test]
fn a_service_that_drains_reads_and_deletes_but_saves_nothing_new() {
    let parent = tempdir().unwrap();
    let path = parent.path().join("engine");
    let artifacts = LazyArtifacts::new(Arc::new(LazyEngineDir::new(path.clone(), ROOM)), 1 << 20);
    assert!(!path.exists(), "nothing is made before it is used");
    save(&artifacts.store_for_save().unwrap(), "a", b"x").unwrap();
    artifacts.start_draining();
    assert_eq!(artifacts.store_for_save().unwrap_err().code, EngineCode::EngineClosed);
    assert_eq!(load(&artifacts.store().unwrap(), "a", None), Ok(b"x".to_vec()));
    let other = LazyArtifacts::new(Arc::new(LazyEngineDir::new(path, ROOM)), 1 << 20);
    assert_eq!(other.store().unwrap_err().code, EngineCode::EngineClosed);
}
