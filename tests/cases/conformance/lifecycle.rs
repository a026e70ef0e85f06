//! What lasts for a Cell, and what is there before and after it.

use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::fchown;
use std::path::PathBuf;

use serde_json::json;

use cofferdam::cases::{
    CellExecutorKind, CellSettings, ExecCode, ExecError, ExecRequest, Executor,
};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_tree::Owner;

use super::doors::{Scene, by_library};
use super::{exited, has};

/// The guarantees that have a test of their own here.
pub const GUARANTEES: [&str; 7] = [
    "before a start nothing runs",
    "after a stop nothing runs, and a second stop does nothing",
    "a failed start leaves nothing",
    "files, /tmp and HOME last for the Cell",
    "the source itself is unchanged",
    "a cancelled command ends and is a result",
    "the sandbox is given as a directory, and replaced by another",
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

/// Writes the file `new` into a directory, for `owner`.
fn write_new(into: BorrowedFd<'_>, owner: Owner) -> Result<(), ExecError> {
    let path = PathBuf::from(format!("/proc/self/fd/{}/new", into.as_raw_fd()));
    let written = || -> io::Result<()> {
        assert_eq!(fs::read_dir(path.parent().unwrap())?.count(), 0);
        fs::write(&path, "new\n")?;
        fchown(into, Some(owner.uid), Some(owner.gid))?;
        fchown(File::open(&path)?, Some(owner.uid), Some(owner.gid))
    };
    written().map_err(|error| ExecError::new(ExecCode::BackendFailed, error.to_string()))
}

#[test]
fn the_sandbox_is_given_as_a_directory_and_replaced_by_another() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        let cell = scene.cell(kind, "");
        assert_eq!(cell.open_sandbox().unwrap_err().code, ExecCode::NotStarted, "{kind:?}");
        cell.start().unwrap();
        shell(cell.as_ref(), "mkdir .git; echo one > .git/a; echo kept > $TMPDIR/b");
        let opened = cell.open_sandbox().unwrap();
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        assert_eq!(fs::read_to_string(format!("{path}/.git/a")).unwrap(), "one\n", "{kind:?}");
        cell.replace_sandbox(&mut write_new).unwrap();
        drop(opened);
        let result = shell(cell.as_ref(), "ls -A; cat new $TMPDIR/b; echo more >> new && touch c");
        assert!(has(&result, &exited(0, "new\nnew\nkept\n")), "{kind:?}: {result}");
        if kind != CellExecutorKind::Sandboxed {
            shell(cell.as_ref(), "cd .. && mv sandbox gone && ln -s / sandbox");
            assert!(cell.open_sandbox().is_err(), "{kind:?}: a link is followed");
            cell.replace_sandbox(&mut write_new).unwrap();
            assert_eq!(shell(cell.as_ref(), "ls -A")["stdout"]["text"], "new\n", "{kind:?}");
        }
        let failing = &mut |_: BorrowedFd<'_>, _| Err(ExecError::new(ExecCode::TooLarge, "no"));
        assert_eq!(cell.replace_sandbox(failing).unwrap_err().code, ExecCode::TooLarge, "{kind:?}");
        cell.stop();
        assert_eq!(cell.open_sandbox().unwrap_err().code, ExecCode::Stopped, "{kind:?}");
    }
    assert_eq!(fs::read_dir(scene.cells()).unwrap().count(), 0);
}
