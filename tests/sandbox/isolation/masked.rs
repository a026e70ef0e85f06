//! What of the host stays invisible although a directory around it is shown.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cofferdam_test_support::processes::in_own_process;
use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// A directory that every user may enter and read.
fn place_in(directory: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir_in(directory).unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    place
}

/// Prints every file below `path` and everything that can be read of it.
fn look_at(path: &Path) -> Program {
    let path = path.display();
    Program::sh(&format!("find {path} -mindepth 1; find {path} -type f -exec cat {{}} +"))
}

#[test]
fn a_foreign_top_level_directory_is_absent_whenever_it_was_created() {
    let before = place_in("/");
    fs::write(before.path().join("file"), "secret").unwrap();
    let Some(host) = support::host_with(|_| {}) else { return };
    let after = place_in("/");
    let report = host.run(Program::sh(&format!(
        "for path in {} {}; do test -e $path && echo seen: $path; done
         ls / | tr '\\n' ' '",
        before.path().display(),
        after.path().display()
    )));
    let seen = stdout_of(&report);
    let known = [
        "bin",
        "dev",
        "etc",
        "gnu",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "nix",
        "opt",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
        "var",
        "workspace",
    ];
    let unknown = seen.split_whitespace().find(|name| !known.contains(name));
    assert_eq!(unknown, None, "{seen}");
}

#[test]
fn a_private_path_created_after_the_start_behind_a_link_is_masked() {
    let place = place_in("/usr/local");
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(place.path(), elsewhere.path().join("link")).unwrap();
    let private = vec![elsewhere.path().join("link/made")];
    let Some(host) = support::host_with(|config| config.private = private) else { return };
    for path in ["made", "open"] {
        fs::write(place.path().join(path), format!("text of {path}")).unwrap();
    }
    let seen = stdout_of(&host.run(look_at(place.path())));
    assert!(seen.contains("text of open"), "nothing around it is shown: {seen}");
    assert!(!seen.contains("text of made"), "{seen}");
}

#[test]
fn a_private_path_created_or_moved_after_the_start_is_masked() {
    let place = place_in("/usr/local");
    let (made, linked) = (place.path().join("made"), place.path().join("linked"));
    let private = vec![made.clone(), linked.clone()];
    let Some(host) = support::host_with(|config| config.private = private) else { return };
    assert_eq!(stdout_of(&host.run(look_at(place.path()))), "");

    fs::create_dir_all(place.path().join("elsewhere/store")).unwrap();
    for path in ["elsewhere/store/x", "elsewhere/open"] {
        fs::write(place.path().join(path), path).unwrap();
    }
    symlink("elsewhere/store", &linked).unwrap();
    fs::write(&made, "secret").unwrap();
    let seen = stdout_of(&host.run(look_at(place.path())));
    assert!(seen.contains("elsewhere/open"), "nothing around it is shown: {seen}");
    assert!(!seen.contains("store/x") && !seen.contains("secret"), "{seen}");

    fs::remove_file(&made).unwrap();
    fs::create_dir(&made).unwrap();
    fs::write(made.join("later"), "secret").unwrap();
    let seen = stdout_of(&host.run(look_at(place.path())));
    assert!(!seen.contains("later") && !seen.contains("secret"), "{seen}");
}

#[test]
fn a_private_path_below_a_bind_is_masked_there() {
    let place = place_in("/tmp");
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    fs::write(store.join("x"), "secret").unwrap();
    let private = vec![store];
    let Some(host) = support::host_with(|config| config.private = private) else { return };
    for read_only in [true, false] {
        let look = look_at("/shown".as_ref()).bind(place.path(), "/shown", read_only);
        assert_eq!(lines_of(&host.run(look)), ["/shown/store"]);
    }
}

/// Creates files below `place` and mounts over them a tmpfs with other files and a file over a
/// file.
fn mount_over(place: &Path) {
    let none: Option<&str> = None;
    let (volume, file) = (place.join("volume"), place.join("file"));
    fs::create_dir_all(volume.join("deep")).unwrap();
    fs::write(volume.join("deep/under"), "underside\n").unwrap();
    fs::write(&file, "underside\n").unwrap();
    mount(Some("tmpfs"), &volume, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    fs::write(volume.join("over"), "volume\n").unwrap();
    mount(Some(&volume.join("over")), &file, none, MsFlags::MS_BIND, none).unwrap();
}

#[test]
fn file_systems_mounted_below_a_shown_directory_and_what_they_hide_are_invisible() {
    let test = "isolation::masked::file_systems_mounted_below_a_shown_directory_and_what_they_hide_are_invisible";
    in_own_process(test, || {
        drop(support::host());
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let (before, after) = (place_in("/usr/local"), place_in("/usr/local"));
        mount_over(before.path());
        let Some(host) = support::host_with(|_| {}) else { return };
        mount_over(after.path());
        for place in [before.path(), after.path()] {
            let want = ["file", "volume"].map(|name| place.join(name).display().to_string());
            let mut seen = lines_of(&host.run(look_at(place)));
            seen.sort();
            assert_eq!(seen, want);
        }
        // The same holds in a bind.
        let look = look_at("/shown".as_ref()).bind(after.path(), "/shown", false);
        let mut seen = lines_of(&host.run(look));
        seen.sort();
        assert_eq!(seen, ["/shown/file", "/shown/volume"]);

        for place in [before.path(), after.path()] {
            for name in ["file", "volume"] {
                nix::mount::umount(&place.join(name)).unwrap();
            }
        }
        let seen = stdout_of(&host.run(look_at(before.path())));
        assert!(seen.contains("underside"), "covered with nothing mounted: {seen}");
    });
}
