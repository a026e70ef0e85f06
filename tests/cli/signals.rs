//! Ending `exec` and `run` from outside: signals and closed pipes.

use std::fs;
use std::io::Read;
use std::process::Child;
use std::time::Duration;

use cofferdam_test_support::processes::{cgroups_of, eventually};
use nix::sys::signal::{Signal, kill};

use crate::support::{
    Call, cofferdam, ends_within, exec_sh, is_running, langs, pid_of, until_running,
};

/// How soon after a signal everything must have ended.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Starts `call` and waits until its program has written a byte.
fn started(call: Call) -> Child {
    let mut child = call.spawn();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[test]
fn a_signal_ends_the_sandbox_and_sets_the_exit_code() {
    for (signal, code, duration) in
        [(Signal::SIGTERM, 143, "600.143"), (Signal::SIGINT, 130, "600.13")]
    {
        // The script ignores signals and has a detached child.
        let script =
            format!("trap '' TERM INT HUP; setsid sleep {duration} & echo up; sleep {duration}");
        let mut child = started(exec_sh("", &script));
        until_running(duration, &mut child);
        kill(pid_of(&child), signal).unwrap();
        assert_eq!(ends_within(&mut child, AT_ONCE).code(), Some(code));
        assert!(!is_running(duration), "a process of the sandbox survived {signal}");
        let mut stderr = String::new();
        child.stderr.unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(stderr, "");
    }
}

#[test]
fn a_killed_command_is_found_by_the_next_one_which_removes_what_it_left() {
    let mut child = started(exec_sh("", "echo up; sleep 600"));
    let links = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let mut opened = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    let Some(instance) = opened.find(|path| path.iter().any(|part| part == "instances")) else {
        panic!("the command is not registered");
    };
    let id = instance.file_name().unwrap().to_str().unwrap();
    let groups = cgroups_of(id);
    kill(pid_of(&child), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let gone = || {
        exec_sh("", ":").run().exits(0);
        !instance.exists() && cgroups_of(id).is_empty()
    };
    assert!(eventually(Duration::from_secs(20), gone), "{} or {groups:?}", instance.display());
}

#[test]
fn output_written_before_a_signal_is_passed_on() {
    let mut child = started(exec_sh("", "echo xlast; echo words >&2; sleep 600"));
    let mut words = [0; 6];
    child.stderr.as_mut().unwrap().read_exact(&mut words).unwrap();
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(143), &b"last\n"[..]));
}

#[test]
fn a_stalled_reader_does_not_delay_the_exit_after_a_signal() {
    for script in ["yes", "yes | head -c 200000"] {
        let mut child = started(exec_sh("--output 0", script));
        kill(pid_of(&child), Signal::SIGTERM).unwrap();
        assert_eq!(ends_within(&mut child, AT_ONCE).code(), Some(143), "{script}");
    }
}

#[test]
fn a_slow_reader_gets_all_output() {
    let mut child = started(exec_sh("--output 0", "head -c 3000000 /dev/zero"));
    let mut rest = Vec::new();
    child.stdout.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), ends_within(&mut child, AT_ONCE).code()), (2_999_999, Some(0)));
}

#[test]
fn a_closed_pipe_ends_the_run_quietly() {
    let mut child = started(cofferdam("exec --output 0 -- yes 600.141"));
    drop(child.stdout.take());
    assert_eq!(ends_within(&mut child, AT_ONCE).code(), Some(141));
    assert!(!is_running("600.141"));
    let mut stderr = String::new();
    child.stderr.unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(stderr, "");
}

#[test]
fn a_signal_ends_a_check() {
    let workspace = tempfile::tempdir().unwrap();
    fs::create_dir(workspace.path().join("check")).unwrap();
    fs::write(workspace.path().join("Makefile"), "test:\n\t@echo up; sleep 600.15\n").unwrap();
    let solution = langs().join("languages.toml");
    for json in [false, true] {
        let call = cofferdam("run --lang python --workspace").arg(workspace.path()).arg(&solution);
        let mut child = if json { call.arg("--json").spawn() } else { started(call) };
        until_running("600.15", &mut child);
        kill(pid_of(&child), Signal::SIGTERM).unwrap();
        assert_eq!(ends_within(&mut child, AT_ONCE).code(), Some(143));
        assert!(!is_running("600.15"));
    }
}
