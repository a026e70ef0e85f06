//! Which Cells run, how many at the same time, and what their ends become.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fixtures::{
    Unobserved, cells, create, failed, files_below, graded, locked, result, run, scripted, statuses,
};
use crate::case::run::{
    CaseRunError, CellEnd, CellFile, CellStatus, RunWork, run_pending, write_reports,
};
use cofferdam_core::sync::cancel::CancelToken;

#[test]
fn every_cell_runs_once_and_its_attempt_is_counted() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a", "b"], 3));
    assert_eq!(statuses(&made), [CellStatus::Pending; 6]);
    let ran = AtomicUsize::new(0);
    run(
        &made,
        1,
        &scripted(|cell, files, _| {
            assert_eq!(ran.fetch_add(1, Ordering::SeqCst) as u64 % 3 + 1, cell.trial);
            graded(files, &cell.id, true)
        }),
    )
    .unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), statuses(&made)), (6, vec![CellStatus::Done; 6]));
    let first = result(&made, 0);
    assert_eq!((first.attempt, first.end.overall_passed), (1, Some(true)));
    assert!(first.end.timing.started_at <= first.end.timing.finished_at);
    assert!(first.end.timing.wall_ms.is_some());
}

#[test]
fn as_many_cells_run_at_the_same_time_as_there_are_workers() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 12));
    let (together, most, now) = (Barrier::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
    run(
        &made,
        4,
        &scripted(|_, files, _| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Waits for ever unless four run.
            together.wait();
            now.fetch_sub(1, Ordering::SeqCst);
            graded(files, "x", true)
        }),
    )
    .unwrap();
    assert_eq!((most.load(Ordering::SeqCst), statuses(&made)), (4, vec![CellStatus::Done; 12]));
}

#[test]
fn a_cell_that_panics_or_has_no_end_fails_and_the_others_run() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 3));
    run(
        &made,
        2,
        &scripted(|cell, files, _| match cell.trial {
            1 => panic!("a Cell breaks off"),
            2 => CellEnd::of(CellStatus::Running),
            _ => graded(files, "x", false),
        }),
    )
    .unwrap();
    assert_eq!(statuses(&made), [CellStatus::Failed, CellStatus::Failed, CellStatus::Done]);
    let fault = result(&made, 0).end.error.unwrap();
    assert_eq!(
        (fault.code.as_str(), fault.message.as_str()),
        ("harness.failed", "the thread of the Cell panicked")
    );
}

#[test]
fn a_second_run_repeats_what_failed_and_leaves_what_is_done_or_skipped() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 3));
    run(
        &made,
        1,
        &scripted(|cell, files, _| {
            files.write(CellFile::Patch, b"first").unwrap();
            match cell.trial {
                1 => failed("setup.failed"),
                2 => CellEnd {
                    skipped_reason: Some("gone".to_owned()),
                    ..CellEnd::of(CellStatus::Skipped)
                },
                _ => graded(files, "x", true),
            }
        }),
    )
    .unwrap();
    let before = files_below(made.path());
    drop(made);
    let again = locked(store.path(), "r").unwrap();
    run(&again, 2, &scripted(|_, files, _| graded(files, "second", true))).unwrap();
    assert_eq!(statuses(&again), [CellStatus::Done, CellStatus::Skipped, CellStatus::Done]);
    let attempts = [0, 1, 2].map(|number| result(&again, number).attempt);
    assert_eq!(attempts, [2, 1, 1]);
    let after = files_below(again.path());
    let repeated = |path: &std::path::PathBuf| path.to_str().unwrap().contains("__t1/");
    for (path, bytes) in before.iter().filter(|(path, _)| !repeated(path)) {
        assert_eq!(after.get(path), Some(bytes), "{}", path.display());
    }
    let patch = again.path().join("cells/c__a__m__t1/agent.patch");
    assert!(!patch.exists(), "the files of an earlier attempt are gone");
}

#[test]
fn a_stopped_run_has_pending_cells_and_keeps_what_was_graded() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 5));
    let stop = CancelToken::new().unwrap();
    let runner = scripted(|cell, files, stop| {
        if cell.trial < 2 {
            return graded(files, "x", true);
        }
        stop.cancel();
        // What is killed may look like a failure.
        if cell.trial == 2 { failed("harness.failed") } else { CellEnd::of(CellStatus::Pending) }
    });
    let work =
        RunWork { run: &made, runner: &runner, workers: 1, stop: &stop, observer: &Unobserved };
    run_pending(&work).unwrap();
    let mut wanted = vec![CellStatus::Pending; 5];
    wanted[0] = CellStatus::Done;
    assert_eq!(statuses(&made), wanted);
    assert_eq!((result(&made, 1).attempt, result(&made, 2).attempt), (1, 0));
    let summary = write_reports(&made).unwrap();
    assert_eq!((summary.cells.pending, summary.exit_code(Some(143))), (4, 143));
}

#[test]
fn after_a_result_that_cannot_be_written_no_cell_begins() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["a"], 3));
    let cell = made.path().join("cells/c__a__m__t1");
    let runner = scripted(|_, files, _| {
        let end = graded(files, "x", true);
        std::fs::remove_dir_all(&cell).unwrap();
        std::fs::write(&cell, "in the way").unwrap();
        end
    });
    let ended = run(&made, 1, &runner);
    assert!(matches!(ended, Err(CaseRunError::Store(_))), "{ended:?}");
    assert_eq!(statuses(&made), [CellStatus::Pending; 3]);
    assert_eq!(result(&made, 1).attempt, 0);
}
