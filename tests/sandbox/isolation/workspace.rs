//! The workspace is a private copy of its template, whichever way it was filled.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};
use tempfile::TempDir;

/// Templates of about this many files are copied.
const COPIED_FILES: usize = 5;
/// Templates of this many files are the lower layer of an overlay.
const OVERLAID_FILES: usize = 60;

fn write(path: &Path, contents: &str, mode: u32) {
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A template with entries of every kind and `files` more files.
fn template(files: usize) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(root.join("check")).unwrap();
    fs::create_dir(root.join("closed")).unwrap();
    write(&root.join("Makefile"), "test:\n\ttrue\n", 0o644);
    write(&root.join("run.sh"), "echo ran\n", 0o755);
    write(&root.join("secret"), "mine\n", 0o600);
    write(&root.join("closed/file"), "inside\n", 0o640);
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("run.sh", root.join("link")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    for number in 0..files {
        write(&root.join(format!("check/{number}.txt")), "template\n", 0o644);
    }
    place
}

/// Everything about a tree that a tenant could change.
fn described(root: &Path) -> Vec<String> {
    let mut pending = vec![root.to_owned()];
    let mut lines = Vec::new();
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let contents = if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        lines.push(format!(
            "{} {:o} {}:{} {}.{} {contents:?}",
            path.display(),
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
            metadata.mtime_nsec()
        ));
    }
    lines.sort();
    lines
}

/// Calls `hold` with a template for each way of filling that this host supports.
#[track_caller]
fn for_every_filling(hold: impl Fn(&support::Host, &Path)) {
    let Some(host) = support::host() else { return };
    for (files, overlaid) in [(COPIED_FILES, false), (OVERLAID_FILES, true)] {
        let template = template(files);
        let mounts = "grep -c '^overlay /workspace ' /proc/mounts || true";
        let report = host.run(Program::sh(mounts).template(template.path()));
        let is_overlay = stdout_of(&report) == "1\n";
        if overlaid && !support::has("overlays of templates with mapped ids", is_overlay) {
            continue;
        }
        assert_eq!(is_overlay, overlaid, "{files} files");
        hold(&host, template.path());
    }
}

#[test]
fn modes_links_and_contents_are_those_of_the_template() {
    for_every_filling(|host, template| {
        let report = host.run(
            Program::sh(
                "stat -c '%n %a %u' Makefile run.sh secret closed closed/file
                 readlink link absolute dangling
                 ./link >/dev/null 2>&1; cat secret closed/file; sh link; pwd -P",
            )
            .template(template),
        );
        assert_eq!(
            lines_of(&report),
            [
                "Makefile 644 10001",
                "run.sh 755 10001",
                "secret 600 10001",
                "closed 700 10001",
                "closed/file 640 10001",
                "run.sh",
                "/etc/passwd",
                "nowhere",
                "mine",
                "inside",
                "ran",
                "/workspace",
            ]
        );
    });
}

#[test]
fn a_tenant_can_change_its_workspace_but_not_the_template() {
    for_every_filling(|host, template| {
        let before = described(template);
        let report = host.run(
            Program::sh(
                "set -e
                 for file in check/*.txt; do echo edited >>$file; done
                 echo over >run.sh
                 chmod 777 Makefile
                 touch -d @0 secret
                 ln -sf elsewhere link
                 mv closed/file moved
                 rmdir closed
                 mv check elsewhere
                 rm dangling
                 echo new >dangling
                 mkdir check
                 echo fresh >check/0.txt
                 cat run.sh elsewhere/0.txt check/0.txt moved
                 rm -rf /workspace/* ; ls -A",
            )
            .template(template),
        );
        assert_eq!(lines_of(&report), ["over", "template", "edited", "fresh", "inside"]);
        assert_eq!(described(template), before);
        let again = host.run(Program::sh("ls check | wc -l; cat secret").template(template));
        assert_ne!(lines_of(&again)[0], "0");
    });
}

#[test]
fn given_files_belong_to_the_tenant_and_replace_those_of_the_template() {
    for_every_filling(|host, template| {
        let report = host.run(
            Program::sh("cat check/0.txt new/deep/file; stat -c '%U %u %a' check/0.txt new/deep; ls check | wc -l")
                .template(template)
                .file("check/0.txt", b"given\n")
                .file("new/deep/file", b"made\n"),
        );
        let lines = lines_of(&report);
        assert_eq!(lines[..2], ["given", "made"]);
        assert!(lines[2].ends_with(" 10001 644"), "{lines:?}");
        assert!(lines[3].ends_with(" 10001 755"), "{lines:?}");
        assert_eq!(lines[4], fs::read_dir(template.join("check")).unwrap().count().to_string());
        assert_eq!(fs::read_to_string(template.join("check/0.txt")).unwrap(), "template\n");
    });
}

#[test]
fn without_a_template_the_workspace_is_empty_and_belongs_to_the_tenant() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh("ls -A; stat -c %u .; echo x >file && cat file"));
    assert_eq!(lines_of(&report), ["10001", "x"]);
}
