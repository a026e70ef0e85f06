//! Views of the host's processes, mounts and cgroups, and tests that run in their own process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable that names the test to run in the re-executed binary.
const ALONE: &str = "COFFERDAM_TEST_ALONE";

/// A command that runs the test `test`, given by its full path, in a separate process.
pub fn own_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, test);
    command
}

/// Whether this process was started by [`own_process`] for `test`.
pub fn is_own_process(test: &str) -> bool {
    std::env::var_os(ALONE).is_some_and(|alone| alone == test)
}

/// Runs `body` as the test `test` in a process that runs no other test, because it inspects the
/// whole process.
#[track_caller]
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if is_own_process(test) {
        return body();
    }
    let output = own_process(test).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("1 passed"), "there is no test {test}: {stdout}");
    eprint!("{stderr}");
}

/// The `/proc/<pid>/status` of every process of the host whose real uid is `uid`.
fn statuses_of(uid: u32) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap();
    // A process that has just ended has no status.
    let statuses =
        entries.filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("status")).ok());
    let uid = uid.to_string();
    let is_theirs = |status: &String| field(status, "Uid").is_some_and(|real| real == uid);
    statuses.filter(is_theirs).collect()
}

/// The first word of the field `name` of a status.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(value)?.split_whitespace().next()
}

/// The processes of the host whose real uid is `uid`, described.
pub fn processes_of(uid: u32) -> Vec<String> {
    let describe = |status: &String| {
        ["Pid", "Name", "State"].map(|name| field(status, name).unwrap_or("?")).join(" ")
    };
    statuses_of(uid).iter().map(describe).collect()
}

/// The pid of the init of the sandbox with the host uid `uid`: the parent of its oldest process.
pub fn init_of(uid: u32) -> u32 {
    let number = |status: &String, name| field(status, name).unwrap().parse::<u32>().unwrap();
    let statuses = statuses_of(uid);
    let eldest = statuses.iter().min_by_key(|status| number(status, "Pid")).unwrap();
    number(eldest, "PPid")
}

/// Polls `holds` for at most `patience`, and returns whether it became true.
pub fn eventually(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if began.elapsed() > patience {
            return false;
        }
        // Only the parent of a process is notified of its end.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The registration directories of instances of this process, found by the lock files that it holds
/// open.
pub fn own_instances() -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let mut instances: Vec<PathBuf> = targets
        .filter(|path| path.ends_with("lock"))
        .filter_map(|path| path.parent().map(Path::to_owned))
        .filter(|path| path.parent().is_some_and(|parent| parent.ends_with("instances")))
        .collect();
    instances.sort();
    instances
}

/// Every cgroup directory of the instance `id` and below.
pub fn cgroups_of(id: &str) -> Vec<PathBuf> {
    let name = format!("cofferdam-{id}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut pending: Vec<PathBuf> = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
        .collect();
    let mut found = Vec::new();
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_type().unwrap().is_dir()) {
            pending.push(entry.path());
            if entry.path().iter().any(|part| part == name.as_str()) {
                found.push(entry.path());
            }
        }
    }
    found
}
