//! The API of the crate on this host's kernel, as root.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cofferdam_sandbox::{LimitKind, NotStarted, Outcome, Sandbox};

const MIB: u64 = 1 << 20;
/// Longer than any command here takes that is not killed.
const ENDLESS: &str = "1000";

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new().unwrap())
}

fn sh(script: &str) -> cofferdam_sandbox::Command {
    sandbox().command("sh").arg("-c").arg(script)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_command_gets_its_words_environment_directory_and_input() {
    let output = sh("echo $0 $1 $KEY; pwd; cat; echo words >&2; exit 3")
        .args(["zero", "one"])
        .env("KEY", "value")
        .current_dir("/tmp")
        .stdin("input")
        .output()
        .unwrap();
    assert_eq!(output.outcome, Outcome::Exited { code: 3 });
    assert_eq!(text(&output.stdout), "zero one value\n/tmp\ninput");
    assert_eq!(text(&output.stderr), "words\n");
    assert_eq!(output.report.usage.stdout_bytes, 25);
}

#[test]
fn a_command_sees_neither_our_environment_nor_our_files_nor_a_network() {
    let home = std::env::var("HOME").unwrap();
    let output = sh("env | sort; ls /workspace /home /root; cat /proc/net/dev | grep -c : ; id -u")
        .env_clear()
        .output()
        .unwrap();
    let stdout = text(&output.stdout);
    assert!(!stdout.contains(&home) && stdout.ends_with("1\n10001\n"), "{stdout}");
}

#[test]
fn each_limit_that_is_hit_is_named() {
    let limit = |command: cofferdam_sandbox::Command| command.output().unwrap().outcome.limit();
    let loops = "while :; do :; done";
    let timeout = Duration::from_millis(300);
    assert_eq!(limit(sh("sleep 1000").timeout(timeout)), Some(LimitKind::WallTime));
    assert_eq!(limit(sh(loops).cpu_time(timeout)), Some(LimitKind::CpuTime));
    let hog = sandbox().command("python3").args(["-c", "b'x' * (256 << 20)"]);
    assert_eq!(limit(hog.memory(64 * MIB)), Some(LimitKind::Memory));
    assert_eq!(limit(sh("head -c 3M /dev/zero > f").disk(MIB)), Some(LimitKind::Disk));
    assert_eq!(limit(sh("head -c 3M /dev/zero").output_limit(MIB)), Some(LimitKind::Output));
    let bomb = "for i in 1 2 3 4 5 6 7 8; do sleep 9 & done; wait";
    assert_eq!(limit(sh(bomb).processes(4)), Some(LimitKind::Processes));
}

#[test]
fn a_bound_directory_is_read_only_unless_it_is_asked_to_be_writable() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(directory.path(), mode).unwrap();
    fs::write(directory.path().join("given"), "given").unwrap();
    let script = "cat /data/given; echo made > /data/made";
    let read_only = sh(script).bind(directory.path(), "/data").output().unwrap();
    assert_eq!(text(&read_only.stdout), "given");
    assert!(!directory.path().join("made").exists());
    let writable = sh(script).bind_writable(directory.path(), "/data").output().unwrap();
    assert_eq!(writable.outcome, Outcome::Exited { code: 0 }, "{}", text(&writable.stderr));
    assert_eq!(fs::read_to_string(directory.path().join("made")).unwrap(), "made\n");
}

#[test]
fn a_program_that_is_not_there_is_an_error_that_says_so() {
    match sandbox().command("/no/such/program").output() {
        Err(NotStarted::Exec { errno }) => assert_eq!(errno, libc::ENOENT),
        other => panic!("{other:?}"),
    }
    let error = sandbox().command("a\0b").output().unwrap_err().to_string();
    assert_eq!(error, "sandbox: argument: holds a NUL byte");
}

#[test]
fn a_killed_child_is_cancelled_and_everything_it_started_is_dead() {
    let child = sh("sleep 1000 & sleep 1000").spawn().unwrap();
    assert!(!child.is_finished());
    child.kill();
    assert_eq!(child.wait().unwrap().outcome, Outcome::Cancelled);
}

#[test]
fn a_dropped_child_is_killed_before_the_drop_returns() {
    let marker = format!("{ENDLESS}.{}", std::process::id());
    let mut child = sandbox().command("sh").args(["-c", &format!("echo; sleep {marker}")]);
    child = child.timeout(Duration::from_secs(60));
    let mut child = child.spawn_piped().unwrap();
    // By the first line the program runs.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(child);
    let command_lines = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok());
    assert_eq!(command_lines.filter(|line| line.contains(&marker)).count(), 0);
}

#[test]
fn output_is_read_while_the_program_runs() {
    let mut child = sh("echo first; sleep 1000").spawn_piped().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    assert!(!child.is_finished());
    child.kill();
    let output = child.wait().unwrap();
    assert_eq!((output.outcome, output.stdout.len()), (Outcome::Cancelled, 0));
}

#[test]
fn output_arrives_whole_and_in_order_from_both_streams() {
    let script =
        "i=0; while [ $i -lt 50 ]; do head -c 65536 /dev/zero; i=$((i+1)); done; echo end >&2";
    let mut child = sh(script).output_limit(8 * MIB).spawn_piped().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut errors = String::new();
    stderr.read_to_string(&mut errors).unwrap();
    assert_eq!(reader.join().unwrap(), vec![0; 50 * 65_536]);
    assert_eq!(errors, "end\n");
    assert_eq!(child.wait().unwrap().outcome, Outcome::Exited { code: 0 });
}

#[test]
fn output_that_its_reader_drops_does_not_hold_the_program_up() {
    let began = Instant::now();
    let mut child = sh("head -c 4M /dev/zero; exit 7").output_limit(8 * MIB).spawn_piped().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().outcome, Outcome::Exited { code: 7 });
    assert!(began.elapsed() < Duration::from_secs(30));
}
