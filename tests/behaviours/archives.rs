//! What a task's archive may be.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{EvaluationScene, WANTS_DONE, write};

#[test]
fn b21_an_archive_is_known_by_its_content() {
    let scene = EvaluationScene::new();
    let task = TempDir::new().unwrap();
    write(task.path(), &WANTS_DONE);
    write(&task.path().join("nested/deep"), &[]);
    let nested = TempDir::new().unwrap();
    write(&nested.path().join("task"), &WANTS_DONE);
    let zip = scene.path("served/named.tar");
    let script = format!(
        "import shutil; shutil.make_archive('{0}', 'zip', '{1}')",
        zip.display(),
        task.path().display()
    );
    assert!(Command::new("python3").args(["-c", &script]).status().unwrap().success());
    fs::rename(zip.with_extension("tar.zip"), &zip).unwrap();
    for url in [
        scene.pack("a", task.path(), &[]),
        scene.pack("b.zip", task.path(), &["-z"]),
        scene.pack("c", nested.path(), &["-z"]),
        scene.url("named.tar"),
    ] {
        let result = scene.agent(&url, "touch done");
        assert_eq!(result["verdict"], "resolved", "{url}: {result:#}");
    }
}

#[test]
fn b22_an_unsafe_archive_is_refused_by_its_entry_and_nothing_is_written() {
    let scene = EvaluationScene::with(&[("EVAL_UNPACKED_MAX", "32MiB")]);
    for (name, script, reason) in [
        ("parent", "add('../escaped', b'x')", "traversal"),
        ("absolute", "add('/tmp/cofferdam-escaped', b'x')", "absolute"),
        ("symlink", "link('files/l', '/etc/passwd', tarfile.SYMTYPE)", "link"),
        ("hardlink", "link('l', 'workspace.yaml', tarfile.LNKTYPE)", "link"),
        ("device", "link('null', '', tarfile.CHRTYPE)", "device"),
        ("fifo", "link('f', '', tarfile.FIFOTYPE)", "device"),
        ("twice", "add('prompt.md', b'x')", "duplicate"),
        ("size", "add('files/large', os.urandom(33 << 20))", "size"),
        ("bomb", "add('files/zeros', bytes(31 << 20))", "ratio"),
        ("many", "[add('files/%d' % i, b'') for i in range(100001)]", "entries"),
    ] {
        let path = scene.path(&format!("served/{name}"));
        let make = format!(
            "import io, os, sys, tarfile\nout = tarfile.open(sys.argv[1], 'w:gz')\n\
             def add(name, data):\n    entry = tarfile.TarInfo(name)\n    entry.size = len(data)\n    \
             out.addfile(entry, io.BytesIO(data))\n\
             def link(name, to, kind):\n    entry = tarfile.TarInfo(name)\n    \
             entry.type, entry.linkname = kind, to\n    out.addfile(entry)\n\
             add('workspace.yaml', b'files: files\\n')\nadd('prompt.md', b'')\nadd('files/a', b'')\n\
             add('tests/fail_to_pass_1.sh', b'exit 0\\n')\n{script}\nout.close()\n"
        );
        let made = Command::new("python3").args(["-c", &make]).arg(&path).status().unwrap();
        assert!(made.success());
        let result = scene.agent(&scene.url(name), ":");
        let failure = &result["failure"];
        assert_eq!(failure["code"], "task.unsafe_archive", "{name}: {result:#}");
        assert_eq!(failure["details"]["reason"], reason, "{name}: {failure}");
        assert!(failure["details"]["entry"].is_string(), "{name}: {failure}");
        assert_eq!((&result["verdict"], &result["passed"]), (&json!("infra_error"), &Value::Null));
    }
    assert!(!fs::exists("/tmp/cofferdam-escaped").unwrap());
    assert_eq!(scene.leftovers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn b23_what_a_task_lacks_is_named_with_its_file_and_field() {
    let scene = EvaluationScene::new();
    let [description, prompt, file, test] = WANTS_DONE;
    for (files, named, field) in [
        (vec![prompt, file, test], "workspace.yaml", None),
        (vec![("workspace.yaml", "files: [\n"), prompt, file, test], "workspace.yaml", None),
        (vec![("workspace.yaml", "version: 1\n"), prompt, test], "workspace.yaml", Some("repo")),
        (
            vec![("workspace.yaml", "files: files\nenv: 7\n"), prompt, file, test],
            "workspace.yaml",
            Some("env"),
        ),
        (vec![description, file, test], "prompt.md", None),
    ] {
        let result = scene.agent(&scene.serve(&files), ":");
        let failure = &result["failure"];
        assert_eq!(
            (&result["status"], &failure["code"]),
            (&json!("failed"), &json!("task.invalid"))
        );
        assert!(result["error"].as_str().unwrap().contains(named), "{result:#}");
        assert_eq!(failure["details"]["file"], named, "{failure}");
        if let Some(field) = field {
            assert_eq!(failure["details"]["field"], field, "{failure}");
        }
        assert_eq!(failure["step"], "downloading_task", "{failure}");
    }
}

#[test]
fn b24_a_download_that_fails_or_is_too_large_ends_there() {
    let scene = EvaluationScene::with(&[("EVAL_ARCHIVE_MAX", "1MiB"), ("SESSION_TTL_SECS", "8")]);
    for (name, code) in [
        ("none", "task.download_failed"),
        ("large?1048577", "task.too_large"),
        ("endless", "task.too_large"),
    ] {
        let result = scene.agent(&scene.url(name), ":");
        assert_eq!(result["failure"]["code"], code, "{name}: {result:#}");
        assert_eq!(result["step"], "downloading_task", "{name}: {result:#}");
    }
    // A byte a second is not too slow for a download, which ends with its evaluation.
    let result = scene.agent(&scene.url("slow"), ":");
    let seen = ["verdict", "passed", "step"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("timed_out"), Value::Null, json!("downloading_task")], "{result:#}");
    assert_eq!(result["failure"]["code"], "session.expired", "{result:#}");
}

#[test]
fn links_below_files_that_stay_inside_are_kept() {
    let scene = EvaluationScene::new();
    let task = TempDir::new().unwrap();
    write(task.path(), &WANTS_DONE);
    symlink("a", task.path().join("files/link")).unwrap();
    let script = "test \"$(readlink link)\" = a\n";
    fs::write(task.path().join("tests/fail_to_pass_1.sh"), script).unwrap();
    let result = scene.agent(&scene.pack("links", task.path(), &[]), ":");
    assert_eq!(result["verdict"], "resolved", "{result:#}");
}
