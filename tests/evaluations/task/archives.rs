//! Archives of tasks at the binary's door, packed by the programs that people use.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::tasks::{CLEAN, check, directory, write};

/// Packs `from` by Python's `kind` of archive (zip, tar, gztar) with the prefix `task/`.
fn packed(from: &Path, kind: &str, place: &TempDir) -> PathBuf {
    let script = "import os, shutil, sys; shutil.copytree(sys.argv[1], sys.argv[3] + '/top/task', symlinks=True); \
                  print(shutil.make_archive(sys.argv[3] + '/packed', sys.argv[2], sys.argv[3] + '/top'))";
    python(script, &[from.to_str().unwrap(), kind, place.path().to_str().unwrap()])
}

/// The path that a script of Python prints.
fn python(script: &str, arguments: &[&str]) -> PathBuf {
    let output = Command::new("python3").args(["-c", script]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn archives_of_every_kind_are_checked_as_their_directory_is() {
    let clean = directory(&CLEAN);
    let faulty = directory(&CLEAN);
    write(faulty.path(), &[("workspace.yaml", "repo: https://example.com/r.git\nversion: main\n")]);
    for kind in ["zip", "tar", "gztar"] {
        let place = TempDir::new().unwrap();
        assert_eq!(check(&packed(clean.path(), kind, &place)), (0, Vec::new()), "{kind}");
        let place = TempDir::new().unwrap();
        let (code, findings) = check(&packed(faulty.path(), kind, &place));
        assert_eq!((code, findings), check(faulty.path()), "{kind}");
    }
}

#[test]
fn a_hostile_archive_is_a_finding_that_names_the_entry_and_the_reason() {
    let place = TempDir::new().unwrap();
    let outside = place.path().join("outside");
    let script = "
import io, sys, tarfile
path, name, kind, link = sys.argv[1:]
with tarfile.open(path, 'w:gz') as archive:
    entry = tarfile.TarInfo(name)
    entry.type = kind.encode()
    entry.linkname = link
    archive.addfile(entry, io.BytesIO())
print(path)";
    for (name, kind, link, reason) in [
        ("../outside", "0", "", "traversal"),
        (outside.to_str().unwrap(), "0", "", "absolute"),
        ("a", "2", "/etc/passwd", "link"),
        ("a", "1", "/etc/passwd", "link"),
        ("a", "6", "", "device"),
    ] {
        let archive = place.path().join("hostile.tar.gz");
        python(script, &[archive.to_str().unwrap(), name, kind, link]);
        let (code, findings) = check(&archive);
        assert_eq!((code, findings.len()), (1, 1), "{name}");
        assert_eq!(findings[0]["file"], *name);
        let message = format!("task.unsafe_archive: {reason}");
        assert_eq!(findings[0]["message"], *message);
        assert!(!outside.exists());
    }
}

#[test]
fn a_bomb_is_a_finding() {
    let place = TempDir::new().unwrap();
    let archive = place.path().join("bomb.zip");
    let script = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('bomb', bytes(64 << 20))
print(sys.argv[1])";
    let (code, findings) = check(&python(script, &[archive.to_str().unwrap()]));
    assert_eq!((code, &findings[0]["file"]), (1, &"bomb".into()));
    assert_eq!(findings[0]["message"], "task.unsafe_archive: ratio");
}
