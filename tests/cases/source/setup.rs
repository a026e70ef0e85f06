//! What is done to the files of a Cell before its agent sees them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use cofferdam::case::file::{CaseSetup, StubTarget};
use cofferdam::case::source::{PreparedSource, SetupFault, SourcePlan, set_up};
use cofferdam::cases::{CellExecutorKind, ExecRequest, Executor};
use cofferdam_core::values::deadline::Deadline;

use super::scene::SourceScene;

const EXECUTORS: [CellExecutorKind; 2] = [CellExecutorKind::Sandboxed, CellExecutorKind::Local];
const PYTHON: &str = "#!/usr/bin/env python3\ndef f():\n    \"\"\"Doc.\"\"\"\n    return 1\n";
const EMPTIED: &str =
    "#!/usr/bin/env python3\ndef f():\n    \"\"\"Doc.\"\"\"\n    raise NotImplementedError\n";

/// A Cell with a source of Python files, of that kind.
fn cell(scene: &SourceScene, kind: CellExecutorKind) -> (PreparedSource, Box<dyn Executor>) {
    let source = scene.at("python");
    if !source.exists() {
        fs::create_dir_all(source.join("lib")).unwrap();
        fs::write(source.join("lib/real.py"), PYTHON).unwrap();
        fs::set_permissions(source.join("lib/real.py"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("lib/real.py", source.join("link.py")).unwrap();
    }
    let prepared = scene.prepare(&SourcePlan::Copy(source.clone())).unwrap();
    (prepared, scene.cell(kind, source))
}

fn setup(file: &str, function: &str, run: &[&str]) -> CaseSetup {
    let stub = vec![StubTarget { file: file.into(), function: function.to_owned() }];
    CaseSetup { stub, run: run.iter().map(ToString::to_string).collect(), ..CaseSetup::default() }
}

#[test]
fn a_function_is_emptied_behind_its_link_and_commands_run_in_order() {
    let Some(scene) = SourceScene::new() else { return };
    for kind in EXECUTORS {
        let (prepared, cell) = cell(&scene, kind);
        let find = |path: &std::path::Path| prepared.find_file(path, None);
        let run = [
            "echo \"$A\" > seen",
            "test -x link.py && cat link.py >> seen; stat -c %a lib/real.py >> seen",
        ];
        let env = BTreeMap::from([("A".to_owned(), Some("of provisioning".to_owned()))]);
        let deadline = Deadline::after(Duration::from_secs(60));
        set_up(&*cell, &setup("link.py", "f", &run), &env, deadline, &find).unwrap();
        let seen = String::from_utf8(cell.get("seen").unwrap()).unwrap();
        assert_eq!(seen, format!("of provisioning\n{EMPTIED}755\n"), "{kind:?}");
        assert_eq!(cell.get("lib/real.py").unwrap(), EMPTIED.as_bytes(), "{kind:?}");
        let link = cell.run(&ExecRequest::new(["readlink", "link.py"])).unwrap();
        assert_eq!(link.stdout.text, "lib/real.py\n", "{kind:?}");
        cell.stop();
    }
}

#[test]
fn a_setup_that_fails_names_its_file_function_or_command() {
    let Some(scene) = SourceScene::new() else { return };
    for kind in EXECUTORS {
        let (prepared, cell) = cell(&scene, kind);
        let find = |path: &std::path::Path| prepared.find_file(path, None);
        let tried = |setup: &CaseSetup, timeout: Duration| {
            set_up(&*cell, setup, &BTreeMap::new(), Deadline::after(timeout), &find).unwrap_err()
        };
        let minute = Duration::from_secs(60);
        let fault = tried(&setup("none.py", "f", &[]), minute);
        assert!(fault.to_string().starts_with("setup.stub: \"none.py\": "), "{fault}");
        let fault = tried(&setup("lib/real.py", "g", &[]), minute);
        assert_eq!(fault.to_string(), "setup.stub: lib/real.py: there is no function 'g'");
        assert_eq!(fault.code(), "setup.failed");
        let fault =
            tried(&setup("lib/real.py", "f", &["true", "seq 1 9000; echo no >&2; exit 3"]), minute);
        assert_eq!(fault.to_string(), "setup command failed: seq 1 9000; echo no >&2; exit 3");
        assert_eq!(fault.tail().chars().count(), 2000);
        assert!(fault.tail().ends_with("9000\nno\n"), "{}", fault.tail());
        let sleeps = CaseSetup { run: vec!["sleep 60".to_owned()], ..CaseSetup::default() };
        let fault = tried(&sleeps, Duration::from_secs(1));
        assert!(matches!(fault, SetupFault::Command { outcome: "timed_out", .. }), "{fault}");
        assert_eq!(fault.code(), "setup.timed_out");
        let fault = tried(&sleeps, Duration::ZERO);
        assert_eq!(fault.code(), "setup.timed_out");
        cell.stop();
    }
}
