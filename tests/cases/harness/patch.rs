//! Patches that are applied: whole, or not at all.

use std::fs;
use std::process::Command;

use cofferdam::cases::Executor;

use super::stage::{Stage, content};
use crate::conformance::doors::WITHOUT_IMAGE;

const REPLAY: &str = "harnesses: {again: {kind: replay, patch: a.patch}}\n";
const MEND: &str = "\
diff --git a/kept.txt b/kept.txt
--- a/kept.txt
+++ b/kept.txt
@@ -1 +1 @@
-kept
+mended
";
const ADD: &str = "\
diff --git a/new.sh b/new.sh
new file mode 100755
--- /dev/null
+++ b/new.sh
@@ -0,0 +1 @@
+echo new
diff --git a/plain b/plain
deleted file mode 100644
--- a/plain
+++ /dev/null
@@ -1 +0,0 @@
-plain
";
const NO_FIT: &str = "\
diff --git a/dir/inner b/dir/inner
--- a/dir/inner
+++ b/dir/inner
@@ -1 +1 @@
-something else
+x
";

fn replay(stage: &Stage, cell: &dyn Executor, patch: &[u8]) -> (Option<u8>, String) {
    fs::write(stage.directory().join("a.patch"), patch).unwrap();
    let end = stage.work(cell, REPLAY, "again").unwrap();
    (end.agent.exit_code, end.output)
}

#[test]
fn a_patch_is_applied_whole_or_not() {
    let Some(stage) = Stage::new() else { return };
    for kind in WITHOUT_IMAGE {
        let cell = stage.scene.started(kind, "");
        let cell = cell.as_ref();
        for (patch, words) in
            [(format!("{MEND}{NO_FIT}"), "dir/inner"), ("no patch".to_owned(), "")]
        {
            let (code, said) = replay(&stage, cell, patch.as_bytes());
            assert!(code != Some(0) && said.contains(words), "{kind:?}: {said}");
            assert_eq!(content(cell, "kept.txt").as_deref(), Some("kept\n"), "{kind:?}");
        }
        assert_eq!(replay(&stage, cell, b" \n"), (Some(0), String::new()), "{kind:?}");
        let cut = format!("{MEND}{ADD}");
        let (code, said) = replay(&stage, cell, cut.trim_end().as_bytes());
        assert_eq!(code, Some(0), "{kind:?}: {said}");
        assert_eq!(content(cell, "kept.txt").as_deref(), Some("mended\n"), "{kind:?}");
        assert_eq!(content(cell, "new.sh").as_deref(), Some("echo new\n"), "{kind:?}");
        assert_eq!(content(cell, "plain"), None, "{kind:?}");
        cell.stop();
    }
}

#[test]
fn a_binary_patch_is_applied_below_a_repository_too() {
    let Some(stage) = Stage::new() else { return };
    // The Cell's directory lies below this one.
    let cells = stage.scene.cells();
    git(&cells, &["init", "-q"]);
    let made = tempfile::tempdir().unwrap();
    git(made.path(), &["init", "-q"]);
    fs::write(made.path().join("data.bin"), [0, 255, 1, 254]).unwrap();
    git(made.path(), &["add", "data.bin"]);
    let patch = git(made.path(), &["diff", "--cached", "--binary"]);
    let cell = stage.local();
    let (code, said) = replay(&stage, cell.as_ref(), &patch);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(cell.get("data.bin").unwrap(), [0, 255, 1, 254]);
}

fn git(directory: &std::path::Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("git").current_dir(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
