//! Runs on disk: made whole, used by one process, found by what a user names.

use std::fs;
use std::path::Path;

use super::fixtures::{
    YAML, cells, create, graded, locked, new_run, result, run, scripted, statuses,
};
use crate::case::run::{CaseRunError, CellStatus, NewRun, RunFolder, case_file, find_run};

#[test]
fn a_run_is_made_whole_and_its_id_is_taken_then() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a", "b"], 2));
    for name in ["manifest.json", "case.yaml", "cells/c__b__m__t2/result.json"] {
        assert!(made.path().join(name).is_file(), "{name}");
    }
    assert_eq!(fs::read(made.path().join("case.yaml")).unwrap(), YAML);
    let folder = RunFolder::open_or_create(store.path()).unwrap();
    let again = folder.create(&new_run("r", cells(&["a"], 1)));
    assert!(matches!(again, Err(CaseRunError::Taken(id)) if id.as_str() == "r"));
    let names: Vec<_> = fs::read_dir(store.path().join("cases")).unwrap().collect();
    assert_eq!(names.len(), 1);
}

#[test]
fn a_run_that_was_not_finished_being_made_is_removed_by_the_next() {
    let store = tempfile::tempdir().unwrap();
    let folder = RunFolder::open_or_create(store.path()).unwrap();
    let left = store.path().join("cases/.new-0123");
    fs::create_dir_all(left.join("cells/x")).unwrap();
    folder.create(&new_run("r", cells(&["a"], 1))).unwrap();
    assert!(!left.exists());
}

#[test]
fn two_processes_never_work_on_one_run() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 1));
    // The lock belongs to an opening of the file, so that this process is refused like another.
    let refused = locked(store.path(), "r").unwrap_err();
    let words = format!("the run r is in use by process {}", std::process::id());
    assert_eq!(refused.to_string(), words);
    drop(made);
    assert!(locked(store.path(), "r").is_ok());
}

#[test]
fn a_changed_case_or_source_is_refused() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 1));
    assert_eq!((made.check_case(YAML), made.check_source("source")), (Ok(()), Ok(())));
    let words = |refused: Result<(), CaseRunError>| refused.unwrap_err().to_string();
    assert!(words(made.check_case(b"id: d\n")).starts_with("the Case changed"));
    assert!(words(made.check_source("other")).starts_with("the source changed"));
}

#[test]
fn a_result_that_is_damaged_or_left_running_is_pending() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 4));
    run(&made, 1, &scripted(|_, files, _| graded(files, "x", true))).unwrap();
    let path = |trial: u64| made.path().join(format!("cells/c__a__m__t{trial}/result.json"));
    let whole = fs::read(path(1)).unwrap();
    fs::write(path(1), &whole[..whole.len() / 2]).unwrap();
    let text = String::from_utf8(fs::read(path(2)).unwrap()).unwrap();
    fs::write(path(2), text.replace("\"done\"", "\"running\"")).unwrap();
    // The result of another Cell.
    fs::write(path(3), &whole).unwrap();
    let pending = CellStatus::Pending;
    assert_eq!(statuses(&made), [pending, pending, pending, CellStatus::Done]);
    assert_eq!((result(&made, 0).attempt, result(&made, 1).attempt), (0, 1));
}

#[test]
fn a_manifest_cannot_name_a_place_outside_its_run() {
    let store = tempfile::tempdir().unwrap();
    for id in ["", "..", "../x", "a/b", ".a"] {
        let made = create(store.path(), "r", cells(&["a"], 1));
        let path = made.path().join("manifest.json");
        let text = fs::read_to_string(&path).unwrap().replace("c__a__m__t1", id);
        drop(made);
        fs::write(&path, text).unwrap();
        assert!(matches!(locked(store.path(), "r"), Err(CaseRunError::Store(_))), "{id:?}");
        fs::remove_dir_all(store.path().join("cases/r")).unwrap();
    }
}

#[test]
fn a_run_is_found_by_its_id_its_directory_or_its_case() {
    let store = tempfile::tempdir().unwrap();
    let case = tempfile::tempdir().unwrap();
    fs::write(case.path().join("case.yaml"), YAML).unwrap();
    let case_path = case_file(case.path()).canonicalize().unwrap();
    let folder = RunFolder::open_or_create(store.path()).unwrap();
    for id in ["old", "new"] {
        let new = NewRun { case_path: &case_path, ..new_run(id, cells(&["a"], 1)) };
        drop(folder.create(&new).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(folder.create(&new_run("other", cells(&["a"], 1))).unwrap());
    let found = |store: &Path, word: &Path| find_run(store, word).map(|found| found.name);
    let directory = store.path().join("cases/old");
    let (file, elsewhere) = (case.path().join("case.yaml"), Path::new("/nowhere"));
    for (store, word, wanted) in [
        (store.path(), Path::new("old"), "old"),
        (store.path(), directory.as_path(), "old"),
        (elsewhere, directory.as_path(), "old"),
        (store.path(), case.path(), "new"),
        (store.path(), file.as_path(), "new"),
    ] {
        assert_eq!(found(store, word).as_deref(), Ok(wanted), "{}", word.display());
    }
    for (store, word) in [
        (store.path(), Path::new("gone")),
        (store.path(), Path::new("../cases/old")),
        (elsewhere, case.path()),
        (store.path(), store.path()),
    ] {
        let refused = found(store, word);
        assert!(matches!(refused, Err(CaseRunError::Unknown(_))), "{refused:?}");
    }
}
