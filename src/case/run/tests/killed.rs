//! Runs whose process is killed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::fixtures::{cells, create, files_below, graded, locked, run, scripted};
use crate::case::run::{CellFile, CellResult, CellStatus, LockedRun, write_reports};

/// Set in the child process: the store to use.
const CHILD: &str = "COFFERDAM_TEST_CASE_RUN";
/// How often a run is killed.
const ROUNDS: &str = "COFFERDAM_TEST_KILL_ROUNDS";
const ROUNDS_DEFAULT: u64 = 20;
const CELLS: u64 = 20;
const TEST: &str = "after_a_kill_at_any_moment_what_is_done_is_unchanged_and_the_rest_is_run";

/// Runs the Cells; each writes several files with its process's id and takes a few milliseconds.
fn run_slowly(run_of: &LockedRun) {
    let runner = scripted(|cell, files, _| {
        let log = files.open_log(CellFile::Commands).unwrap();
        for step in 0..4 {
            log.append_line(&(step, std::process::id()));
            thread::sleep(Duration::from_millis(1));
        }
        files.write_json(CellFile::Metrics, &std::process::id()).unwrap();
        let end = graded(files, &format!("{} by {}", cell.id, std::process::id()), true);
        if env::var_os(CHILD).is_some() {
            // Tells the parent how far this is.
            writeln!(std::io::stdout(), "\ngraded").unwrap();
        }
        end
    });
    run(run_of, 4, &runner).unwrap();
    write_reports(run_of).unwrap();
}

fn child(store: &Path) -> Child {
    let name = format!("{}::{TEST}", module_path!().split_once("::").unwrap().1);
    Command::new("/proc/self/exe")
        .args([name.as_str(), "--exact", "--nocapture"])
        .env(CHILD, store)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a child after it has graded `graded` Cells and `delay` more.
fn kill_after(store: &Path, graded: u64, delay: Duration) {
    let mut child = child(store);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut seen = 0;
    while seen < graded {
        match lines.next() {
            Some(line) if line == "graded" => seen += 1,
            Some(_) => {}
            None => panic!("the child ended after {seen} Cells"),
        }
    }
    thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The files of each Cell whose result says that it is done.
fn done_files(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(run.join("cells")).unwrap() {
        let cell = entry.unwrap().path();
        let result = fs::read(cell.join("result.json")).unwrap_or_default();
        let result = serde_json::from_slice::<CellResult>(&result).ok();
        if result.is_some_and(|result| result.end.status == CellStatus::Done) {
            found.extend(files_below(&cell));
        }
    }
    found
}

#[test]
fn after_a_kill_at_any_moment_what_is_done_is_unchanged_and_the_rest_is_run() {
    if let Some(store) = env::var_os(CHILD) {
        return run_slowly(&create(Path::new(&store), "r", cells(&["a"], CELLS)));
    }
    let rounds = env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS_DEFAULT);
    let (mut interrupted, mut kept) = (0, 0);
    for round in 0..rounds {
        let store = tempfile::tempdir().unwrap();
        let random = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        kill_after(store.path(), 1 + round % CELLS, Duration::from_micros(random * 40));
        let path = store.path().join("cases/r");
        let before = done_files(&path);
        let again = locked(store.path(), "r").unwrap();
        run_slowly(&again);

        let after = files_below(&path);
        for (path, bytes) in &before {
            assert_eq!(after.get(path), Some(bytes), "round {round}: {}", path.display());
        }
        let results: Vec<CellResult> =
            again.manifest().cells.iter().map(|cell| again.result(cell).unwrap()).collect();
        assert!(results.iter().all(CellResult::has_passed), "round {round}");
        let lines = String::from_utf8(after[&path.join("results.jsonl")].clone()).unwrap();
        assert_eq!(lines.lines().count() as u64, CELLS, "round {round}");
        let unfinished = after.keys().find(|path| path.to_str().unwrap().ends_with(".new"));
        assert_eq!(unfinished, None, "round {round}");
        interrupted += results.iter().filter(|result| result.attempt == 2).count();
        kept += before.len();
    }
    // Otherwise nothing was tested.
    assert!(interrupted > 0 && kept > 0, "{interrupted} interrupted, {kept} files kept");
}
