//! Commands that leave what could lead a commit astray.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use crate::support::{EndedTrial, TrialPlace, exact, is_privileged, paths};

/// Runs a Python program on the directory.
fn python(here: &TrialPlace, options: &str, program: &str) -> EndedTrial {
    EndedTrial::of(here.command(options).args(["--", "python3", "-c", program]))
}

#[test]
fn no_planted_link_leads_a_commit_out_of_the_directory() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("d/f", "old"), ("e/f", "old")]);
    let outside = here.beside("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    let target = outside.display();
    // In place of directories that hold changed files, and in one that the owner of DIR swaps meanwhile.
    let script =
        format!("rm -r d; ln -s {target} d; ln -s {target} new; echo new >e/f; echo x >e/g");
    let waiting = here.wait_in("--commit", &script);
    fs::remove_dir_all(here.dir.join("e")).unwrap();
    symlink(&outside, here.dir.join("e")).unwrap();
    waiting.end().exits(125).says("conflict: e");
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside");
    assert!(!outside.join("g").exists());
    let here = TrialPlace::with(&[("d/f", "old")]);
    here.sh("--commit", &format!("rm -r d; ln -s {target} d")).exits(0);
    assert!(here.dir.join("d").symlink_metadata().unwrap().is_dir());
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside");
}

#[test]
fn marks_of_the_overlay_that_a_program_makes_hide_nothing() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("a", "a"), ("d/f", "f")]);
    let program = "
import os, stat
for act in (
    lambda: os.mknod('w', stat.S_IFCHR | 0o600, 0),
    lambda: os.mknod('d/w', stat.S_IFCHR | 0o600, 0),
    lambda: os.mknod('n', stat.S_IFBLK | 0o600, os.makedev(8, 0)),
    lambda: os.setxattr('d', 'trusted.overlay.opaque', b'y'),
    lambda: os.setxattr('d', 'user.overlay.opaque', b'y'),
    lambda: os.setxattr('d', 'trusted.overlay.redirect', b'/a'),
    lambda: os.setxattr('a', 'user.overlay.whiteout', b'y'),
):
    try: act()
    except OSError: pass
print(sorted(os.listdir('d')))
open('d/new', 'w').write('x')
";
    let done = python(&here, "--commit", program).exits(0);
    assert!(done.stdout().contains("'f'"), "{}", done.stdout());
    assert_eq!(
        (here.read("a"), here.read("d/f"), here.read("d/new")),
        ("a".into(), "f".into(), "x".into())
    );
    let is_device = |path: &Vec<u8>| {
        use std::os::unix::ffi::OsStrExt;
        let file = here.dir.join(std::ffi::OsStr::from_bytes(path));
        let kind = file.symlink_metadata().unwrap().file_type();
        kind.is_char_device() || kind.is_block_device()
    };
    assert!(!paths(&here.dir).iter().any(is_device));
}

#[test]
fn any_name_is_told_in_one_line_and_committed() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::new();
    let program = r"
import os
for name in (b'new\nline', b'\xff\xfe', b'D forged', b'q\x22uote', b'-rf', b'\x1b[31m', 'ü'.encode(), b'x' * 255):
    os.mkdir(name); open(name + b'/' + name, 'w').close()
";
    let done = python(&here, "--commit", program).exits(0);
    let stderr = done.stderr();
    assert_eq!(stderr.lines().count(), 16, "{stderr}");
    assert!(stderr.lines().all(|line| line.starts_with("A ")), "{stderr}");
    assert!(stderr.lines().any(|line| line == r#"A "new\nline""#), "{stderr}");
    assert!(stderr.lines().any(|line| line == r#"A "\377\376""#), "{stderr}");
    assert_eq!(paths(&here.dir).len(), 16);
}

#[test]
fn special_files_are_committed_as_what_they_are() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "f")]);
    let program = "
import os, socket
os.mkfifo('pipe', 0o620); os.chmod('pipe', 0o620)
s = socket.socket(socket.AF_UNIX); s.bind('sock')
os.unlink('f'); os.mkfifo('f')
";
    python(&here, "--commit", program).exits(0).changes(&["T f", "A pipe", "A sock"]);
    let at = |name: &str| here.dir.join(name).symlink_metadata().unwrap();
    assert!(at("pipe").file_type().is_fifo() && at("f").file_type().is_fifo());
    assert!(at("sock").file_type().is_socket());
    assert_eq!(at("pipe").mode() & 0o7777, 0o620);
}

#[test]
fn renamed_directories_are_committed_whole() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("a/b/f", "f"), ("a/g", "g"), ("c/x", "x"), ("t", "t")]);
    let program = "
import os
os.rename('a', 'z'); os.rename('c', 'a'); os.rename('z/b', 'a/b'); os.rename('t', 'z/t')
open('a/b/f', 'a').write('!')
";
    let lines = ["M a/b/f", "D a/g", "A a/x", "D c", "D c/x", "D t", "A z", "A z/g", "A z/t"];
    python(&here, "--commit", program).exits(0).changes(&lines);
    let names: Vec<_> =
        paths(&here.dir).iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    assert_eq!(names, ["a", "a/b", "a/b/f", "a/x", "z", "z/g", "z/t"]);
    assert_eq!((here.read("a/b/f"), here.read("z/g")), ("f!".into(), "g".into()));
}

#[test]
fn a_huge_sparse_file_and_a_deep_tree_end_soon() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "f")]);
    let before = exact(&here.dir);
    let program = "
import os
os.truncate(os.open('huge', os.O_CREAT | os.O_RDWR), 1 << 39)
for _ in range(300):
    os.mkdir('deep' * 10); os.chdir('deep' * 10)
";
    let done = python(&here, "--disk 64MiB", program);
    let code = done.output.status.code();
    assert!(matches!(code, Some(0 | 1 | 125)), "{code:?} {}", done.stderr());
    assert_eq!(exact(&here.dir), before);
}

#[test]
fn a_file_for_the_results_is_never_opened_through_a_planted_link() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::new();
    let victim = here.beside("victim");
    fs::write(&victim, "victim").unwrap();
    let options = format!("--commit --changes {0}/c.json", here.dir.display());
    let script = format!("rm -f c.json; ln -s {} c.json; true", victim.display());
    here.sh(&options, &script);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "victim");
}
