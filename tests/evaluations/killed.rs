//! What a killed `cofferdam evaluate` leaves, and what becomes of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam_test_server::host::loops_below;
use cofferdam_test_support::processes::{cgroups_of, eventually};

use crate::scene::Scene;

/// How long the kernel may take to end what a killed process held.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_killed_evaluation_leaves_nothing_once_the_next_has_run() {
    let scene = Scene::new(&[("files/answer", "42\n"), ("tests/answer.sh", "test -f answer\n")]);
    let agent = scene.write("agent.sh", "exec sleep 600\n");
    let base = scene.path("sessions");
    let mut killed = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
        .arg("evaluate")
        .arg(scene.path("task"))
        .args(["--agent", &agent])
        .env("WORKSPACE_BASE", &base)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(killed.stderr.take().unwrap()).lines();
    let reached = lines.map_while(Result::ok).any(|line| line.contains("running_agent"));
    assert!(reached, "the agent did not begin");
    let [session] = &children(&base)[..] else { panic!("{:?}", children(&base)) };
    let instances = instances_of(killed.id());
    let groups = || instances.iter().flat_map(|id| cgroups_of(id)).collect::<Vec<_>>();
    assert!(!instances.is_empty());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(Path::new(session).exists(), "only the next process removes it");

    let next = scene.evaluate(&["--nop"]);
    assert_eq!(next.code, 0, "{next:?}");
    assert_eq!(children(&base), [""; 0]);
    assert!(eventually(PATIENCE, || loops_below(&base).is_empty()), "{:?}", loops_below(&base));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(base.to_str().unwrap()), "{mounts}");
    assert!(eventually(PATIENCE, || groups().is_empty()), "{:?}", groups());
}

#[test]
fn a_base_that_others_could_have_made_refuses_the_start() {
    let scene = Scene::new(&[("tests/a.sh", "true\n")]);
    let link = scene.path("link");
    fs::create_dir(scene.path("target")).unwrap();
    std::os::unix::fs::symlink(scene.path("target"), &link).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
        .arg("evaluate")
        .arg(scene.path("task"))
        .arg("--nop")
        .env("WORKSPACE_BASE", &link)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("WORKSPACE_BASE: ") && words.contains("not a link"), "{words}");
    assert_eq!(children(&scene.path("target")), [""; 0]);
}

fn children(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect()
}

/// The names of the sandbox hosts of a process, by the lock files that it holds open.
fn instances_of(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let places = targets.filter(|path| path.ends_with("lock"));
    let places = places.filter_map(|path| path.parent().map(Path::to_owned));
    let ours = places.filter(|place| place.parent().is_some_and(|up| up.ends_with("instances")));
    ours.map(|place| place.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}
