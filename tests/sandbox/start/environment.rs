//! The environment of a program: exactly what the run specifies.

use cofferdam_test_support::{self as support, Program, stdout_of};

#[test]
fn the_environment_is_exactly_what_was_given() {
    let Some(host) = support::host() else { return };
    let given = ["B=2", "A=1", "EMPTY=", "LINES=one\ntwo", "B=again", "ü=ö"];
    let report = host.run(Program::new(&["/usr/bin/env", "-0"]).env(&given));
    let stdout = stdout_of(&report);
    let seen: Vec<&str> = stdout.split_terminator('\0').collect();
    assert_eq!(seen, given);
}

#[test]
fn an_empty_environment_is_empty() {
    let Some(host) = support::host() else { return };
    assert_eq!(stdout_of(&host.run(Program::new(&["/usr/bin/env"]).env(&[]))), "");
}

#[test]
fn a_program_is_found_in_the_path_of_its_environment() {
    let Some(host) = support::host() else { return };
    let program = || Program::new(&["tool"]).file("bin/tool", b"#!/bin/sh\necho found\n");
    let in_workspace = program().env(&["PATH=/absent:/etc/passwd:/usr/bin:/workspace/bin"]);
    // Written files have no execute bit. Those of a template keep theirs.
    let refused = host.try_run(in_workspace).unwrap_err();
    assert_eq!(refused.to_string(), "sandbox: exec: EACCES");
    let report = host.run(Program::new(&["true"]).env(&["PATH=:/usr/bin"]));
    assert_eq!(stdout_of(&report), "");
}

#[test]
fn a_program_starts_in_its_working_directory_with_umask_022_and_the_sandbox_host_name() {
    let Some(host) = support::host() else { return };
    let script = "pwd; umask; cat /proc/sys/kernel/hostname";
    assert_eq!(stdout_of(&host.run(Program::sh(script))), "/workspace\n0022\nsandbox\n");
    let elsewhere = Program::sh("pwd").workdir("/usr/bin");
    assert_eq!(stdout_of(&host.run(elsewhere)), "/usr/bin\n");
}
