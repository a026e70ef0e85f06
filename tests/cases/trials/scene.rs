//! A Case in a directory, and its runs by the built binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::conformance::doors::binary;
use cofferdam_test_support::host;

/// A task: `add` subtracts. Its hidden test has two cases, of which one passes as it is.
pub const ADD: &str = "def add(a, b):\n    return a - b\n";
const HIDDEN: &str = "import unittest, add
class T(unittest.TestCase):
    def test_three(self): self.assertEqual(add.add(1, 2), 3)
    def test_zero(self): self.assertEqual(add.add(0, 0), 0)
";
const FIX: &str = "diff --git a/add.py b/add.py
--- a/add.py
+++ b/add.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
";
const HEAD: &str = "id: fix-add
task: {prompt: Mend add.}
source: {path: src}
oracle: {patch: fix.patch}
";
/// The grader of the hidden test.
pub const HIDDEN_TEST: &str = "graders:
- {type: tests, cmd: python3 -m unittest -q 2>&1, inject: [test_hidden.py]}
";

/// A Case, and the store of its runs.
pub struct Scene {
    place: TempDir,
}

/// What a run printed, and where it is.
pub struct RunEnd {
    pub code: Option<i32>,
    pub answer: Value,
    pub stderr: String,
}

impl Scene {
    /// The Case with `blocks`. None where sandboxes are impossible.
    pub fn new(blocks: &str) -> Option<Self> {
        host()?;
        let scene = Self { place: tempfile::tempdir().unwrap() };
        for (path, content) in
            [("src/add.py", ADD), ("test_hidden.py", HIDDEN), ("fix.patch", FIX), ("src/kept", "")]
        {
            scene.write(path, content);
        }
        scene.write("case.yaml", &format!("{HEAD}{blocks}"));
        Some(scene)
    }

    /// Writes a file of the Case.
    pub fn write(&self, path: &str, content: &str) {
        let path = self.case().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    pub fn case(&self) -> PathBuf {
        self.place.path().join("case")
    }

    pub fn store(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// `cofferdam case SUBCOMMAND CASE` with more arguments, not started.
    pub fn command(&self, subcommand: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(["case", subcommand]).arg(self.case()).arg("--store-dir").arg(self.store());
        command.args(arguments).env("HOST_SECRET", "of the host");
        command
    }

    /// `cofferdam case exec CASE -- ARGV`, not started. Its files are in the store.
    pub fn exec(&self, argv: &[&str]) -> Command {
        fs::create_dir_all(self.store()).unwrap();
        let mut command = Command::new(binary());
        command.args(["case", "exec"]).arg(self.case()).arg("--").args(argv);
        command.env("TMPDIR", self.store());
        command
    }

    /// The case file.
    pub fn yaml(&self) -> String {
        fs::read_to_string(self.case().join("case.yaml")).unwrap()
    }

    /// Runs the Case to its end.
    pub fn run(&self, arguments: &[&str]) -> RunEnd {
        RunEnd::of(&self.command("run", arguments).output().unwrap())
    }

    /// The directory of a Cell of the newest run.
    pub fn cell(&self, end: &RunEnd, harness: &str, trial: u32) -> PathBuf {
        let name = format!("fix-add__{harness}__m__t{trial}");
        Path::new(end.answer["dir"].as_str().unwrap()).join("cells").join(name)
    }

    /// The result of that Cell.
    pub fn result(&self, end: &RunEnd, harness: &str, trial: u32) -> Value {
        let path = self.cell(end, harness, trial).join("result.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Fails if a file of the store has `text`.
    pub fn assert_no_file_has(&self, text: &str) {
        let mut pending = vec![self.store()];
        let mut read = 0;
        while let Some(directory) = pending.pop() {
            for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                let kind = path.symlink_metadata().unwrap().file_type();
                if kind.is_dir() {
                    pending.push(path);
                } else if kind.is_file() {
                    let content = fs::read(&path).unwrap();
                    let found = content.windows(text.len()).any(|part| part == text.as_bytes());
                    assert!(!found, "{}", path.display());
                    read += 1;
                }
            }
        }
        assert!(read > 5, "{read} files");
    }

    /// Fails unless the files of Cells are gone.
    pub fn assert_nothing_left(&self) {
        let sessions = self.store().join("case-sessions");
        let left: Vec<_> =
            fs::read_dir(&sessions).unwrap().flatten().map(|one| one.path()).collect();
        assert!(left.is_empty(), "{left:?}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(sessions.to_str().unwrap()), "{mounts}");
    }
}

impl RunEnd {
    pub fn of(output: &Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_slice(&output.stdout);
        let answer = answer.unwrap_or_else(|error| panic!("{error}: {stderr}"));
        Self { code: output.status.code(), answer, stderr }
    }

    /// How many Cells are done, failed, skipped and pending.
    pub fn cells(&self) -> [u64; 4] {
        ["done", "failed", "skipped", "pending"]
            .map(|status| self.answer["cells"][status].as_u64().unwrap())
    }
}

/// The lines of a file of JSON lines.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
