//! Tests of what is kept of a workspace that a tenant prepared.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;
use crate::testing::{
    OwnProcess, TreeEntry, chmod, directory, entry, in_memory, in_own_mounts, in_own_process,
    in_time, make_deep, mount_tmpfs, picture,
};
use cofferdam_core::job::OmittedReason;
use cofferdam_core::values::digest::sha256_of;

const LIMITS: ArtifactLimits =
    ArtifactLimits { count_max: 100, file_bytes_max: 1 << 20, total_bytes_max: 1 << 30 };

fn rules(include: &[&str], deny: &[&str]) -> ArtifactRules {
    let texts = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    ArtifactRules::parse(&texts(include), &texts(deny)).unwrap()
}

/// A workspace with these files, each of which holds its path.
fn workspace(paths: &[&str]) -> TempDir {
    let place = in_memory();
    for path in paths {
        let at = place.path().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, path).unwrap();
    }
    place
}

fn collect(
    workspace: &Path,
    rules: &ArtifactRules,
    limits: &ArtifactLimits,
) -> (TempDir, CollectedArtifacts) {
    let store = in_memory();
    let (from, into) = (directory(workspace), directory(store.path()));
    let collected = collect_artifacts(from.as_fd(), rules, limits, into.as_fd()).unwrap();
    for kept in &collected.kept {
        let entry = entry(&store.path().join(kept.path.as_path()));
        assert_eq!((entry.mode, entry.owner.uid), (0o100_600, nix::unistd::getuid().as_raw()));
        assert_eq!(
            (entry.contents.len() as u64, sha256_of(&entry.contents)),
            (kept.bytes, kept.sha256.clone())
        );
    }
    let is_directory = |entry: &&TreeEntry| entry.mode & 0o170_000 == 0o040_000;
    let all = picture(store.path());
    assert!(all.values().filter(is_directory).all(|entry| entry.mode == 0o040_700));
    assert_eq!(all.values().filter(|entry| !is_directory(entry)).count(), collected.kept.len());
    (store, collected)
}

fn kept(collected: &CollectedArtifacts) -> Vec<&str> {
    collected.kept.iter().map(|kept| kept.path.as_str()).collect()
}

fn omitted(collected: &CollectedArtifacts) -> Vec<(&str, OmittedReason)> {
    collected.omitted.iter().map(|(path, reason)| (path.as_str(), *reason)).collect()
}

#[test]
fn the_files_that_match_are_kept_in_the_order_of_their_names() {
    let place = workspace(&["out/b", "out/a/z", "out/a-", "other/x", "top.txt", "out.txt"]);
    chmod(&place.path().join("out/b"), 0o6_777);
    fs::create_dir(place.path().join("out/empty")).unwrap();
    for (include, expected) in [
        (&["out/**"][..], &["out/a/z", "out/a-", "out/b"][..]),
        (&["*.txt"], &["out.txt", "top.txt"]),
        (&["**/[xz]", "out/b"], &["other/x", "out/a/z", "out/b"]),
        // A directory that matches does not make its contents artifacts.
        (&["out"], &[]),
        (&[], &[]),
    ] {
        let (_, collected) = collect(place.path(), &rules(include, &[]), &LIMITS);
        assert_eq!(kept(&collected), expected, "{include:?}");
        assert_eq!((omitted(&collected), collected.omitted_beyond), (vec![], 0), "{include:?}");
    }
}

#[test]
fn denied_files_and_secrets_are_never_kept() {
    let place =
        workspace(&["a/b/c", "a/keep", "x.key", "x/.env", ".ssh/config", "x/log", "x/target/y"]);
    let (_, collected) = collect(place.path(), &rules(&["**"], &["a/b", "**/log"]), &LIMITS);
    assert_eq!(kept(&collected), ["a/keep", "x/target/y"]);
    let expected = [
        (".ssh/config", OmittedReason::Secret),
        ("a/b/c", OmittedReason::Denied),
        ("x/.env", OmittedReason::Secret),
        ("x/log", OmittedReason::Denied),
        ("x.key", OmittedReason::Secret),
    ];
    assert_eq!(omitted(&collected), expected);
}

#[test]
fn each_limit_is_reported_per_file() {
    let place = in_memory();
    for (name, bytes) in [("a", 10), ("b", 4), ("c", 3), ("d", 2), ("e", 0), ("f", 0)] {
        fs::write(place.path().join(name), vec![b'x'; bytes]).unwrap();
    }
    let limits = ArtifactLimits { count_max: 4, file_bytes_max: 4, total_bytes_max: 10 };
    let (_, collected) = collect(place.path(), &rules(&["**"], &[]), &limits);
    let told = |kept: &KeptFile| (kept.path.to_string(), kept.bytes, kept.truncated);
    let told: Vec<_> = collected.kept.iter().map(told).collect();
    let expected = [("a", 4, true), ("b", 4, false), ("d", 2, false), ("e", 0, false)];
    assert_eq!(told, expected.map(|(path, bytes, cut)| (path.to_owned(), bytes, cut)));
    let expected = [("c", OmittedReason::TotalLimit), ("f", OmittedReason::CountLimit)];
    assert_eq!(omitted(&collected), expected);
}

#[test]
fn a_hostile_tree_leaks_nothing_and_does_not_hang() {
    let outside = in_memory();
    let sentinel = outside.path().join("sentinel");
    fs::write(&sentinel, "untouched").unwrap();
    let place = workspace(&["z/plain"]);
    let at = |name: &str| place.path().join(name);
    symlink(&sentinel, at("link")).unwrap();
    symlink(outside.path(), at("folder")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    symlink("loop", at("loop")).unwrap();
    mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    mknod(&at("device"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 5)).unwrap();
    mknod(&at("disk"), SFlag::S_IFBLK, Mode::S_IRWXU, makedev(254, 0)).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    fs::hard_link(at("z/plain"), at("z/again")).unwrap();
    File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
    let (place, (store, collected)) = in_time(move || {
        let collected = collect(place.path(), &rules(&["**"], &[]), &LIMITS);
        (place, collected)
    });
    assert_eq!(kept(&collected), ["sparse", "z/again", "z/plain"]);
    assert!(collected.kept[0].truncated && collected.kept[0].bytes == LIMITS.file_bytes_max);
    let expected = ["device", "disk", "fifo", "folder", "link", "loop", "magic", "socket"];
    assert_eq!(omitted(&collected), expected.map(|name| (name, OmittedReason::NotARegularFile)));
    assert_eq!(fs::read(&sentinel).unwrap(), b"untouched");
    // The kept file is a copy.
    File::options()
        .write(true)
        .open(store.path().join("z/plain"))
        .unwrap()
        .write_all_at(b"Z", 0)
        .unwrap();
    assert_eq!(fs::read(place.path().join("z/plain")).unwrap(), b"z/plain");
}

#[test]
fn odd_names_are_kept_or_omitted_with_a_reason() {
    let place = in_memory();
    let long = [b'x'; 255];
    let names: [&[u8]; 7] = [b"-rf", b"a\nb", b"\xff\xfe", b" ", b"*", b"...", long.as_slice()];
    for name in names {
        let folder = place.path().join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let (store, collected) = collect(place.path(), &rules(&["**"], &[]), &LIMITS);
    assert_eq!(
        omitted(&collected),
        [("\u{fffd}\u{fffd}/\u{fffd}\u{fffd}", OmittedReason::NotText)]
    );
    assert_eq!(collected.kept.len(), 6);
    for name in names.iter().filter(|name| **name != b"\xff\xfe") {
        let name = OsStr::from_bytes(name);
        assert_eq!(fs::read(store.path().join(name).join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn entries_too_deep_are_omitted_without_an_error() {
    let place = workspace(&["a", "z"]);
    make_deep(place.path(), 3_000);
    let (_, collected) = collect(place.path(), &rules(&["**"], &[]), &LIMITS);
    assert_eq!(kept(&collected), ["a", "z"]);
    let [(path, OmittedReason::TreeLimit)] = collected.omitted.as_slice() else {
        panic!("{collected:?}")
    };
    assert!(path.starts_with("d/d/d/") && path.ends_with("d/…") && path.len() < 1_100);
    // Entries that no pattern can match are not listed.
    let (_, collected) = collect(place.path(), &rules(&["z", "*"], &[]), &LIMITS);
    assert_eq!((collected.kept.len(), collected.omitted.len()), (2, 0));
    let parent = directory(place.path());
    assert_eq!(crate::remove_tree(parent.as_fd(), OsStr::new("d")).unwrap().left, 0);
}

#[test]
fn a_file_as_deep_as_a_path_can_be_is_kept() {
    let place = in_memory();
    let levels = (4_095 - "bottom".len()) / 2;
    make_deep(place.path(), levels);
    let (from, store) = (directory(place.path()), in_memory());
    let into = directory(store.path());
    let all = rules(&["**"], &[]);
    let collected = collect_artifacts(from.as_fd(), &all, &LIMITS, into.as_fd()).unwrap();
    assert_eq!((collected.kept.len(), collected.omitted.len()), (1, 0));
    assert_eq!(crate::testing::depth(store.path()), (levels, true));
    for root in [place.path(), store.path()] {
        let root = directory(root);
        assert_eq!(crate::remove_tree(root.as_fd(), OsStr::new("d")).unwrap().left, 0);
    }
}

#[test]
fn unreadable_files_are_omitted_and_the_others_kept() {
    let name = "artifacts::tests::unreadable_files_are_omitted_and_the_others_kept";
    in_own_process(name, OwnProcess::Unprivileged, || {
        let place = workspace(&["closed/x", "half/x", "file", "last", "far/closed/x"]);
        let modes = [("closed", 0), ("half", 0o400), ("file", 0), ("far/closed", 0)];
        for (path, mode) in modes {
            chmod(&place.path().join(path), mode);
        }
        let include = rules(&["*", "closed/**", "half/*"], &[]);
        let (_, collected) = collect(place.path(), &include, &LIMITS);
        assert_eq!(kept(&collected), ["last"]);
        let expected = ["closed", "file", "half"].map(|path| (path, OmittedReason::Unreadable));
        assert_eq!(omitted(&collected), expected);
        chmod(place.path(), 0o100);
        let opened = nix::fcntl::open(
            place.path(),
            nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_DIRECTORY,
            Mode::empty(),
        );
        let (opened, store) = (opened.unwrap(), in_memory());
        let into = directory(store.path());
        let collected = collect_artifacts(opened.as_fd(), &include, &LIMITS, into.as_fd());
        assert_eq!(omitted(&collected.unwrap()), [(".", OmittedReason::Unreadable)]);
        for (path, _) in modes {
            chmod(place.path(), 0o700);
            chmod(&place.path().join(path), 0o700);
        }
    });
}

#[test]
fn mounts_inside_are_not_entered() {
    let place = workspace(&["file", "point/covered"]);
    let root = place.path().to_owned();
    in_own_mounts(move || {
        mount_tmpfs(&root.join("point"));
        fs::write(root.join("point/inside"), "").unwrap();
        let (_, collected) = collect(&root, &rules(&["**/*"], &[]), &LIMITS);
        assert_eq!(kept(&collected), ["file"]);
        assert_eq!(omitted(&collected), [("point", OmittedReason::NotARegularFile)]);
    });
}

#[test]
fn a_large_tree_takes_no_more_than_a_few_seconds_and_a_bounded_list() {
    let place = in_memory();
    let root = place.path().to_owned();
    in_own_mounts(move || {
        // The kind of file system that workspaces have.
        nix::mount::mount(
            None::<&str>,
            &root,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            Some("size=1g,nr_inodes=200k"),
        )
        .unwrap();
        for folder in 0..100 {
            let folder = root.join(format!("{folder:03}"));
            fs::create_dir(&folder).unwrap();
            for number in 0..1_000 {
                let end = if number % 10 == 0 { "out" } else { "txt" };
                File::create(folder.join(format!("{number}.{end}"))).unwrap();
            }
        }
        let from = directory(&root);
        let matching = rules(&["**/*.out"], &["**/*.key"]);
        let within = |count_max| {
            let store = in_memory();
            let into = directory(store.path());
            let limits = ArtifactLimits { count_max, ..LIMITS };
            let begun = Instant::now();
            let collected =
                collect_artifacts(from.as_fd(), &matching, &limits, into.as_fd()).unwrap();
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(20), "{took:?}");
            (collected.kept.len(), collected.omitted, collected.omitted_beyond)
        };
        assert_eq!(within(10_000), (10_000, vec![], 0));
        let (kept, omitted, beyond) = within(100);
        assert_eq!((kept, omitted.len()), (100, OMITTED_MAX));
        assert_eq!(beyond, 10_000 - 100 - OMITTED_MAX as u64);
        assert!(omitted.iter().all(|(_, why)| *why == OmittedReason::CountLimit));
    });
}

#[test]
fn an_existing_entry_of_the_target_is_never_written_through() {
    let (place, store) = (workspace(&["a/file"]), in_memory());
    let sentinel = store.path().join("sentinel");
    fs::write(&sentinel, "untouched").unwrap();
    let into = store.path().join("artifacts");
    fs::create_dir_all(into.join("a")).unwrap();
    symlink(&sentinel, into.join("a/file")).unwrap();
    let (from, into) = (directory(place.path()), directory(&into));
    let refused =
        collect_artifacts(from.as_fd(), &rules(&["**"], &[]), &LIMITS, into.as_fd()).unwrap_err();
    let path = PathBuf::from("a/file");
    let source = nix::errno::Errno::EEXIST;
    assert_eq!(refused, WorkspaceError::System { operation: "mkdir", path, source });
    assert_eq!(fs::read(&sentinel).unwrap(), b"untouched");
}
