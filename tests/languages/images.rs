//! The binary as a replacement for the platform's runner: images that keep build caches below `/opt`
//! or packages in the workspace, and that run as one workspace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::service::{Service, Setup};
use cofferdam_test_server::workspace::Workspace;
use serde_json::json;

use crate::overlaid::Overlaid;

/// The uid with which the platform's images create their caches.
const OF_THE_IMAGE: u32 = 10_001;
/// Does what cargo does in its target directory: takes a lock, creates and replaces a file.
const BUILD: &str = "set -e
cd $CARGO_TARGET_DIR
: >debug/.cargo-lock
echo ${1:-mine} >debug/built.new
mv debug/built.new debug/built
cat debug/built; ls debug -A | wc -l";

/// A root with a directory at each of `paths` that contains a file, with this owner and mode.
fn image(paths: &[(&str, u32, u32)]) -> Overlaid {
    let overlaid = Overlaid::new();
    for (path, owner, mode) in paths {
        let place = overlaid.root().join(path);
        fs::create_dir_all(place.join("debug")).unwrap();
        fs::write(place.join("debug/built"), "of the image\n").unwrap();
        for part in ["", "debug", "debug/built"] {
            let part = place.join(part);
            chown(&part, Some(*owner), Some(*owner)).unwrap();
            fs::set_permissions(&part, PermissionsExt::from_mode(*mode)).unwrap();
        }
    }
    overlaid
}

fn setup(root: &Path, cache: &str) -> Setup {
    Setup::shell()
        .arg("--rootfs")
        .arg(root)
        .env("RUN_ENV_ALLOW", "CARGO_TARGET_DIR")
        .env("CARGO_TARGET_DIR", cache)
        .env("RUN_DISK_MAX", "8MiB")
}

fn run(service: &Service, slug: &str, script: &str) -> Answer {
    service.post(&json!({ "lang_slug": slug, "solution_text": script, "checker_text": "" }))
}

/// Asserts that a run changes neither the files of the next run nor the image.
#[track_caller]
fn holds_a_private_layer(service: &Service, cache: &Path) {
    for _ in 0..2 {
        let finished = run(service, "rust", BUILD).finished();
        assert_eq!(finished.stdout, "mine\n2\n", "{finished:?}");
        assert_eq!(fs::read_to_string(cache.join("debug/built")).unwrap(), "of the image\n");
        assert_eq!(fs::read_dir(cache.join("debug")).unwrap().count(), 1);
    }
}

#[test]
fn each_run_writes_its_own_copy_of_an_images_build_caches() {
    // With the owner of the image's build, and writable to all.
    let caches = [
        ("opt/cargo-target", OF_THE_IMAGE, 0o755),
        ("opt/cargo-target", 0, 0o700),
        ("opt/go/cache", 0, 0o777),
    ];
    for (path, owner, mode) in caches {
        let image = image(&[(path, owner, mode)]);
        let service = setup(&image.root(), &format!("/{path}")).start();
        holds_a_private_layer(&service, &image.root().join(path));
    }
}

#[test]
fn a_layer_counts_towards_the_disk_limit_of_its_run() {
    let image = image(&[("opt/cargo-target", OF_THE_IMAGE, 0o777)]);
    let service = setup(&image.root(), "/opt/cargo-target").start();
    let fill = "head -c 20000000 /dev/zero >$CARGO_TARGET_DIR/big || exit 7";
    let answer = run(&service, "rust", fill);
    assert_eq!(answer.header("x-run-outcome"), Some("disk_limit"), "{answer:?}");
    assert_eq!(run(&service, "rust", BUILD).stdout(), "mine\n2\n");
}

#[test]
fn named_directories_are_writable_instead_of_the_defaults() {
    let image = image(&[("opt/cargo-target", 0, 0o777), ("srv/caches/mine", OF_THE_IMAGE, 0o777)]);
    let named = |path: &str| {
        setup(&image.root(), path).env("RUN_WRITABLE_PATHS", "/srv/caches/mine:/srv/caches/none")
    };
    let service = named("/srv/caches/mine").start();
    holds_a_private_layer(&service, &image.root().join("srv/caches/mine"));
    service.log.wait_for("RUN_WRITABLE_PATHS: /srv/caches/none: it is not there");
    drop(service);
    let refused = run(&named("/opt/cargo-target").start(), "rust", BUILD).finished();
    assert!(refused.stderr.contains("Read-only file system"), "{refused:?}");
}

/// Paths that lead out of the root or out of the directories that runs see.
#[test]
fn a_layer_covers_only_directories_that_runs_see() {
    let image = image(&[("opt/cargo-target", OF_THE_IMAGE, 0o777)]);
    std::os::unix::fs::symlink("/etc", image.root().join("opt/link")).unwrap();
    fs::write(image.root().join("opt/file"), "").unwrap();
    let paths = "/opt/link:/opt/link/apt:/opt/file:/tmp/x:/proc/sys:/:/usr:/opt/cargo-target:\
                 /opt/cargo-target/debug:/opt/../etc";
    let service =
        setup(&image.root(), "/opt/cargo-target").env("RUN_WRITABLE_PATHS", paths).start();
    let log = service.log.text();
    for (path, reason) in [
        ("/opt/link", "a link is on the way"),
        ("/opt/link/apt", "a link is on the way"),
        ("/opt/file", "it is no directory"),
        ("/tmp/x", "want an absolute path below a directory that runs see"),
        ("/proc/sys", "want an absolute path below a directory that runs see"),
        ("/", "want an absolute path below a directory that runs see"),
        ("/usr", "want an absolute path below a directory that runs see"),
        ("/opt/cargo-target/debug", "another one lies below or above it"),
        ("/opt/../etc", "it is not there"),
    ] {
        assert!(log.contains(&format!("{path}: {reason}")), "{path}: {log}");
    }
    holds_a_private_layer(&service, &image.root().join("opt/cargo-target"));
}

#[test]
fn packages_restored_into_the_workspace_of_an_image_are_found() {
    let workspace = Workspace::running(&["ls $$NUGET_PACKAGES"]).with(".nuget/packages/some", "");
    let service = Setup::of(workspace).start();
    assert_eq!(run(&service, "csharp", "").stdout(), "some\n");
}

#[test]
fn the_path_of_an_image_is_searched_in_directories_that_runs_see() {
    let image = image(&[("opt/cargo-target", 0, 0o755)]);
    let bin = image.root().join("usr/local/cargo/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("cargo"), "#!/bin/sh\necho built $PATH\n").unwrap();
    fs::set_permissions(bin.join("cargo"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = "/usr/local/cargo/bin:/home/secret/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:\
                /usr/bin:/sbin:/bin";
    let service = Setup::of(Workspace::running(&["cargo run -q --offline"]))
        .arg("--rootfs")
        .arg(image.root())
        .env("PATH", path)
        .start();
    let want =
        "built /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cargo/bin\n";
    assert_eq!(run(&service, "rust", "").stdout(), want);
}
