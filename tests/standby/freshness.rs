//! A run sees its template as it is at the time of the request, however old the prepared sandbox
//! is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use cofferdam_test_server::client::solution;
use cofferdam_test_server::service::{Service, Setup};
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace, makefile};

use crate::ready::{OVERLAID_FILES, run_in_ready, wait_ready};

/// Prints names, modes and contents.
const SHOW: &str = "find . -path ./check -prune -o ! -name Makefile -printf '%p %M\\n' | sort; \
    find . -path ./check -prune -o -type f ! -name Makefile -print | sort | xargs cat";

/// One change of a template.
type Change = (&'static str, fn(&Workspace));

const CHANGES: [Change; 8] = [
    ("the content of a file as long as before", |workspace| workspace.put("data", "two\n")),
    ("a nested file's", |workspace| workspace.put("lib/deep/data", "two\n")),
    ("a file more", |workspace| workspace.put("lib/deep/more", "more\n")),
    ("a file less", |workspace| fs::remove_file(workspace.path().join("lib/deep/more")).unwrap()),
    ("a mode", |workspace| {
        let path = workspace.path().join("lib/deep/data");
        fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    }),
    ("a directory's mode", |workspace| {
        let path = workspace.path().join("lib");
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    }),
    ("another file under the name", |workspace| {
        workspace.put("new", "six\n");
        fs::rename(workspace.path().join("new"), workspace.path().join("data")).unwrap();
    }),
    ("another directory under the name", |workspace| {
        fs::rename(workspace.path().join("lib/deep"), workspace.path().join("lib/old")).unwrap();
        workspace.put("lib/deep/data", "ten\n");
    }),
];

fn copied() -> Workspace {
    Workspace::shell().with("data", "one\n").with("lib/deep/data", "one\n")
}

fn overlaid() -> Workspace {
    let workspace = copied();
    for number in 0..OVERLAID_FILES {
        workspace.put(&format!("many/{number}"), "one of many\n");
    }
    workspace
}

fn start(workspace: Workspace) -> Service {
    Setup::of(workspace).env("STANDBY_MAX", "1").start()
}

/// The template as the host sees it now, in the form that a run prints.
fn as_on_host(service: &Service) -> String {
    let mut shell = std::process::Command::new("sh");
    let shown = shell.args(["-c", SHOW]).current_dir(service.workspace().path()).output().unwrap();
    // The top directory of a workspace is always created anew.
    let shown = String::from_utf8(shown.stdout).unwrap();
    let (top, rest) = shown.split_once('\n').unwrap();
    assert!(top.starts_with(". d"), "{shown}");
    rest.to_owned()
}

fn as_in_a_run(service: &Service) -> String {
    let shown = service.run(SHOW).stdout();
    shown.split_once('\n').unwrap().1.to_owned()
}

fn assert_every_change_shows(workspace: Workspace) {
    let service = start(workspace);
    assert_eq!(as_in_a_run(&service), as_on_host(&service));
    for (what, change) in CHANGES {
        let ready = wait_ready(&service, 1);
        let before = as_on_host(&service);
        change(service.workspace());
        let after = as_on_host(&service);
        assert_ne!(before, after, "{what}");
        assert_eq!(as_in_a_run(&service), after, "{what}, beside {ready:?}");
    }
    // Sandboxes prepared after the changes can be used.
    let show = solution(SHOW);
    let stood = run_in_ready(&service, &show).stdout();
    assert_eq!(stood.split_once('\n').unwrap().1, as_on_host(&service));
}

#[test]
fn the_next_run_sees_every_change_of_a_copied_template() {
    assert_every_change_shows(copied());
}

#[test]
fn the_next_run_sees_every_change_of_an_overlaid_template() {
    assert_every_change_shows(overlaid());
}

#[test]
fn the_next_run_uses_a_changed_makefile() {
    for workspace in [copied(), overlaid()] {
        let service = start(workspace);
        assert_eq!(service.run("echo solution").stdout(), "solution\n");
        for command in ["echo one", "echo two", RUN_SOLUTION] {
            wait_ready(&service, 1);
            service.workspace().put("Makefile", &makefile(&[command]));
            let said = command.strip_prefix("echo ").unwrap_or("solution");
            assert_eq!(service.run("echo solution").stdout(), format!("{said}\n"));
            assert_eq!(service.run("echo solution").stdout(), format!("{said}\n"));
        }
    }
}

/// The change comes at any point of the preparation of the next sandbox.
fn assert_changes_show_at_once(workspace: Workspace, file: &str) {
    let service = start(workspace);
    let script = format!("cat {file} Makefile | head -n 1");
    assert_eq!(service.run(&script).stdout(), "one\n");
    for round in 0..60_u32 {
        // The contents have the same length. The delays cover the time from the answer until the
        // next sandbox is prepared.
        let text = format!("{round:03}\n");
        thread::sleep(Duration::from_micros(u64::from(round % 12) * 2500));
        service.workspace().put(file, &text);
        assert_eq!(service.run(&script).stdout(), text, "round {round}");
    }
}

#[test]
fn a_change_right_after_a_run_is_seen_by_the_next_in_a_copied_template() {
    assert_changes_show_at_once(copied(), "lib/deep/data");
}

#[test]
fn a_change_right_after_a_run_is_seen_by_the_next_in_an_overlaid_template() {
    assert_changes_show_at_once(overlaid(), "lib/deep/data");
}

#[test]
fn a_template_that_becomes_too_large_to_copy_is_seen_completely() {
    let service = start(copied());
    as_in_a_run(&service);
    wait_ready(&service, 1);
    // In a subdirectory, so that the top of the template does not change.
    for number in 0..OVERLAID_FILES {
        service.workspace().put(&format!("lib/deep/{number}"), "one of many\n");
    }
    assert_eq!(as_in_a_run(&service), as_on_host(&service));
    wait_ready(&service, 1);
    for number in 0..OVERLAID_FILES {
        let path = service.workspace().path().join(format!("lib/deep/{number}"));
        fs::remove_file(path).unwrap();
    }
    assert_eq!(as_in_a_run(&service), as_on_host(&service));
}
