//! Random trees and programs: without `--commit` nothing changes, and with it the tree is as if there were no
//! overlay.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{OWNER, TrialPlace, exact, is_privileged, tree};

/// Trees that one program changes.
const TREES_OF_RUN: usize = 50;
const OPERATIONS_MAX: u64 = 14;
const PROGRAM: &str = include_str!("program.py");

/// Numbers that depend on the seed alone.
pub struct Numbers(u64);

impl Numbers {
    /// From `OVERLAY_SEED`, or the time; prints the seed.
    pub fn seeded() -> Self {
        let given = std::env::var("OVERLAY_SEED").ok().and_then(|text| text.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
        let seed: u64 = given.unwrap_or_else(now);
        eprintln!("OVERLAY_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }
}

/// The number that the variable gives.
pub fn count_of(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A path of one to three names of few, so that operations meet. One name is not UTF-8, one has a newline.
fn path(numbers: &mut Numbers) -> String {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "\u{ff}", "n\nl"];
    let parts = 1 + numbers.below(3);
    (0..parts).map(|_| numbers.of(&NAMES)).collect::<Vec<_>>().join("/")
}

fn text(numbers: &mut Numbers) -> String {
    let length = usize::try_from(numbers.below(40)).unwrap();
    "x".repeat(length) + &numbers.below(1000).to_string()
}

/// As the program reads it: each character is one byte.
fn raw(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = path.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    std::ffi::OsString::from_vec(bytes).into()
}

fn make_tree(root: &Path, numbers: &mut Numbers) {
    fs::create_dir(root).unwrap();
    for _ in 0..numbers.below(12) {
        let (path, other) = (root.join(raw(&path(numbers))), root.join(raw(&path(numbers))));
        let contents = text(numbers);
        let kind = numbers.below(8);
        let Some(parent) = path.parent() else { continue };
        // What is in the way stays.
        let _ = fs::create_dir_all(parent);
        let _ = match kind {
            0 => fs::create_dir(&path),
            1 => symlink(numbers.of(&["a", "b/c", "../a", "gone"]), &path),
            2 => fs::hard_link(&other, &path),
            _ => fs::write(&path, contents),
        };
    }
}

fn operation(numbers: &mut Numbers) -> serde_json::Value {
    let (path, other) = (path(numbers), path(numbers));
    match numbers.below(20) {
        0..3 => serde_json::json!(["write", path, text(numbers)]),
        3..5 => serde_json::json!(["append", path, text(numbers)]),
        5..7 => serde_json::json!(["replace", path, text(numbers)]),
        7 => serde_json::json!(["hole", path, numbers.below(100_000)]),
        8..10 => serde_json::json!(["remove", path]),
        10 => serde_json::json!(["directory", path]),
        11 => serde_json::json!(["directories", path]),
        12 => serde_json::json!(["remove_empty", path]),
        13 => serde_json::json!(["remove_tree", path]),
        14..16 => serde_json::json!(["rename", path, other]),
        16 => serde_json::json!(["link", path, other]),
        17 => serde_json::json!(["symlink", path, numbers.of(&["a", "b/a", "gone", "c"])]),
        18 => serde_json::json!([numbers.of(&["toggle", "touch"]), path]),
        _ => serde_json::json!(["fifo", path]),
    }
}

/// Trees below the directory of `here`, and a program on them.
fn make_run(here: &TrialPlace, numbers: &mut Numbers) -> String {
    let mut lines = String::new();
    for number in 0..TREES_OF_RUN {
        let name = format!("t{number}");
        make_tree(&here.dir.join(&name), numbers);
        for _ in 0..=numbers.below(OPERATIONS_MAX) {
            let mut operation = operation(numbers);
            operation.as_array_mut().unwrap().insert(0, name.clone().into());
            writeln!(lines, "{operation}").unwrap();
        }
    }
    for path in crate::support::paths(&here.dir) {
        use std::os::unix::ffi::OsStrExt;
        let path = here.dir.join(std::ffi::OsStr::from_bytes(&path));
        lchown(path, Some(OWNER), Some(OWNER)).unwrap();
    }
    lines
}

fn feed(command: &mut Command, lines: &str) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
}

#[test]
fn a_dry_run_changes_nothing_and_a_commit_is_as_without_the_overlay() {
    if !is_privileged() {
        return;
    }
    let trees = count_of("OVERLAY_CASES", 1000);
    let mut numbers = Numbers::seeded();
    for run in 0..trees.div_ceil(TREES_OF_RUN) {
        let here = TrialPlace::new();
        let lines = make_run(&here, &mut numbers);
        let without = here.beside("without");
        let copied = Command::new("cp").arg("-a").arg(&here.dir).arg(&without).status().unwrap();
        assert!(copied.success());
        chown(&without, Some(OWNER), Some(OWNER)).unwrap();
        let program = ["--", "python3", "-c", PROGRAM];

        let before = exact(&here.dir);
        feed(here.command("").args(program), &lines);
        let after = exact(&here.dir);
        for (path, state) in &before {
            assert_eq!(
                after.get(path),
                Some(state),
                "run {run}: {}",
                String::from_utf8_lossy(path)
            );
        }
        assert_eq!(before.len(), after.len(), "run {run}");

        let owner = OWNER.to_string();
        let mut direct = Command::new("setpriv");
        // That of the sandbox: another may lead to what this user cannot read.
        direct.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        direct.args(["--reuid", &owner, "--regid", &owner, "--clear-groups"]);
        feed(direct.args(["python3", "-c", PROGRAM]).current_dir(&without), &lines);
        feed(here.command("--commit").args(program), &lines);
        let (wanted, found) = (tree(&without), tree(&here.dir));
        for (path, node) in &wanted {
            let path_text = String::from_utf8_lossy(path);
            assert_eq!(found.get(path), Some(node), "run {run}: {path_text}\n{lines}");
        }
        let more: Vec<_> = found.keys().filter(|path| !wanted.contains_key(*path)).collect();
        assert!(more.is_empty(), "run {run}: {more:?}\n{lines}");
    }
}
