//! When a supervisor dies, its sandboxes die with it, and the next one cleans up the rest.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use cofferdam_core::WorkspaceFill;
use cofferdam_sandbox::engine::SandboxHost;
use cofferdam_test_support::processes::{
    cgroups_of, eventually, is_own_process, own_instances, own_process, processes_of,
};
use cofferdam_test_support::{self as support, Program, lines_of};

const TEST: &str = "crash::sandboxes_of_a_killed_supervisor_die_and_are_cleaned_up";

/// A supervisor with one long run, until it is killed.
fn supervise_for_ever() {
    let Some(host) = support::host() else { return };
    let mut run = host.start(Program::sh(
        "trap '' TERM HUP; setsid sleep 600 & (sleep 600 &); echo up; sleep 600; sleep 600",
    ));
    run.wait_for("up\n");
    for instance in own_instances() {
        println!("crash: {} {}", run.host_uid, instance.display());
    }
    run.join();
}

#[test]
fn sandboxes_of_a_killed_supervisor_die_and_are_cleaned_up() {
    if is_own_process(TEST) {
        return supervise_for_ever();
    }
    let Some(_) = support::host() else { return };
    let mut supervisor = own_process(TEST).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(supervisor.stdout.take().unwrap()).lines();
    // The test runner has already written part of the line.
    let line = lines.find_map(|line| Some(line.unwrap().split_once("crash: ")?.1.to_owned()));
    let line = line.expect("the supervisor reports its directory");
    let (uid, instance) = line.split_once(' ').unwrap();
    let (uid, instance): (u32, PathBuf) = (uid.parse().unwrap(), instance.into());
    let id = instance.file_name().unwrap().to_str().unwrap().to_owned();
    // The shell, its child, the daemon and the orphan.
    let all_there = eventually(Duration::from_secs(10), || processes_of(uid).len() >= 4);
    assert!(all_there, "{:?}", processes_of(uid));
    assert!(instance.exists());

    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let all_dead = eventually(Duration::from_secs(1), || processes_of(uid).is_empty());
    assert!(all_dead, "{:?}", processes_of(uid));

    let Some(successor) = support::host_with(|_| {}) else { return };
    // Another supervisor may do the cleanup and not be finished yet.
    let swept =
        eventually(Duration::from_secs(10), || cgroups_of(&id).is_empty() && !instance.exists());
    assert!(swept, "{:?}, {}", cgroups_of(&id), instance.display());
    assert_eq!(lines_of(&successor.run(Program::sh("echo well"))), ["well"]);
}

#[test]
fn supervisors_do_not_clean_up_each_others_live_sandboxes() {
    let Some(_) = support::host() else { return };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let sandbox = SandboxHost::open(support::host::config()).unwrap();
                    let host_id = sandbox.host_id().unwrap();
                    let running = sandbox.try_workspace(WorkspaceFill::Own);
                    assert_eq!(running, Ok(()), "as {}", host_id.id());
                }
            });
        }
    });
}
