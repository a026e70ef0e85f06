//! What lasts for a Cell, and what is there before and after it.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use cofferdam::cases::{CellSettings, ExecCode, ExecRequest, Executor};
use cofferdam_core::sync::cancel::CancelToken;

use super::doors::{Scene, by_library};
use super::{exited, has};

/// The guarantees that have a test of their own here.
pub const GUARANTEES: [&str; 6] = [
    "before a start nothing runs",
    "after a stop nothing runs, and a second stop does nothing",
    "a failed start leaves nothing",
    "files, /tmp and HOME last for the Cell",
    "the source itself is unchanged",
    "a cancelled command ends and is a result",
];

fn shell(cell: &dyn Executor, command: &str) -> serde_json::Value {
    by_library(cell, &ExecRequest::new(["sh", "-c", command]))
}

fn all_codes(cell: &dyn Executor) -> [Option<ExecCode>; 4] {
    [
        cell.run(&ExecRequest::new(["true"])).err().map(|error| error.code),
        cell.put("a", b"", 0).err().map(|error| error.code),
        cell.get("kept.txt").err().map(|error| error.code),
        cell.describe().err().map(|error| error.code),
    ]
}

#[test]
fn a_cell_answers_from_its_start_to_its_first_stop() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        let cell = scene.cell(kind, "");
        assert_eq!(all_codes(cell.as_ref()), [Some(ExecCode::NotStarted); 4], "{kind:?}");
        cell.start().unwrap();
        assert_eq!(all_codes(cell.as_ref()), [None; 4], "{kind:?}");
        assert_eq!(cell.start().unwrap_err().code, ExecCode::BackendFailed, "{kind:?}");
        for _ in 0..2 {
            cell.stop();
            assert_eq!(all_codes(cell.as_ref()), [Some(ExecCode::Stopped); 4], "{kind:?}");
        }
        assert_eq!(cell.start().unwrap_err().code, ExecCode::Stopped, "{kind:?}");
    }
    assert_eq!(fs::read_dir(scene.cells()).unwrap().count(), 0);
}

#[test]
fn a_failed_start_leaves_nothing() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        let source = Some(PathBuf::from("/no/such/source"));
        let settings = CellSettings { source, ..CellSettings::default() };
        let cell = scene.cell_of(kind, settings, CancelToken::new().unwrap());
        assert_eq!(cell.start().unwrap_err().code, ExecCode::BackendFailed, "{kind:?}");
        assert_eq!(all_codes(cell.as_ref()), [Some(ExecCode::NotStarted); 4], "{kind:?}");
    }
    assert_eq!(fs::read_dir(scene.cells()).unwrap().count(), 0);
}

#[test]
fn files_last_for_the_cell_and_the_source_is_unchanged() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        let cell = scene.started(kind, "");
        let write = "echo new > kept.txt; echo t > $TMPDIR/t; echo h > $HOME/h; echo e > ../env/e";
        assert!(has(&shell(cell.as_ref(), write), &exited(0, "")), "{kind:?}");
        let read = shell(cell.as_ref(), "cat kept.txt $TMPDIR/t $HOME/h ../env/e");
        assert!(has(&read, &exited(0, "new\nt\nh\ne\n")), "{kind:?}: {read}");
        assert_eq!(fs::read_to_string(scene.source().join("kept.txt")).unwrap(), "kept\n");
        let other =
            shell(scene.started(kind, "").as_ref(), "cat kept.txt; ls -A $TMPDIR $HOME ../env");
        assert!(!other["stdout"]["text"].as_str().unwrap().contains("new"), "{kind:?}: {other}");
    }
    assert_eq!(fs::read_dir(scene.cells()).unwrap().count(), 0);
}

#[test]
fn a_cancelled_command_ends_and_is_a_result() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        let cancel = CancelToken::new().unwrap();
        let cell = scene.cell_of(kind, CellSettings::default(), cancel.clone());
        cell.start().unwrap();
        cancel.cancel();
        let answer = by_library(cell.as_ref(), &ExecRequest::new(["sleep", "1000"]));
        let wanted =
            json!({"outcome": "cancelled", "exit_code": null, "signal": null, "limit": null});
        assert!(has(&answer, &wanted), "{kind:?}: {answer}");
    }
}
