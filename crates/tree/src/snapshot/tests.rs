//! Tests of what a snapshot selects, leaves out and refuses, and when two are equal.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, UtimensatFlags, makedev, mknod, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;
use crate::testing::{
    TENANT, chmod, depth, directory, entry, in_memory, in_own_mounts, in_time, make_deep,
    mount_tmpfs, picture, without_rights_over_files,
};
use crate::walk::budget::TreeLimit;
use cofferdam_core::values::digest::sha256_of;

const LIMITS: SnapshotLimits = SnapshotLimits { files_max: 10_000, bytes_max: 1 << 30 };

/// A source, and directories for copies.
struct Scene {
    place: TempDir,
    source: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let place = in_memory();
        let source = place.path().join("source");
        fs::create_dir(&source).unwrap();
        Self { place, source }
    }

    /// With these files, each of which holds its path; a path that ends with `/` is a directory.
    fn with(paths: &[&str]) -> Self {
        let scene = Self::new();
        for path in paths {
            scene.add(path);
        }
        scene
    }

    fn add(&self, path: &str) {
        let at = self.at(path);
        if path.ends_with('/') {
            return fs::create_dir_all(at).unwrap();
        }
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, path).unwrap();
    }

    fn at(&self, path: &str) -> PathBuf {
        self.source.join(path)
    }

    fn open(&self) -> SourceDir {
        SourceDir::open(&self.source).unwrap()
    }

    fn target(&self, name: &str) -> PathBuf {
        let target = self.place.path().join(name);
        fs::create_dir(&target).unwrap();
        target
    }

    fn take_as(
        &self,
        rules: &SnapshotRules,
        limits: &SnapshotLimits,
    ) -> (PathBuf, Result<SnapshotContents, WorkspaceError>) {
        let target = self.target(&format!("target-{}", fs::read_dir(&self.place).unwrap().count()));
        let taken = take_snapshot(
            &self.open(),
            rules,
            limits,
            StopCheck::never(),
            (directory(&target).as_fd(), TENANT),
        );
        (target, taken)
    }

    /// All that a snapshot of everything holds.
    fn take(&self) -> (PathBuf, SnapshotContents) {
        let (target, taken) = self.take_as(&rules(&["**"], &[]), &LIMITS);
        (target, taken.unwrap())
    }

    fn digest(&self) -> String {
        let (target, taken) = self.take();
        fs::remove_dir_all(target).unwrap();
        taken.digest
    }
}

fn rules(include: &[&str], exclude: &[&str]) -> SnapshotRules {
    let texts = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    SnapshotRules::parse(&texts(include), &texts(exclude)).unwrap()
}

/// The paths below `root`, directories with a `/` at their end.
fn paths(root: &Path) -> Vec<String> {
    let path = |(path, entry): (PathBuf, crate::testing::TreeEntry)| {
        let end = if entry.mode & 0o170_000 == 0o040_000 { "/" } else { "" };
        format!("{}{end}", path.to_string_lossy())
    };
    picture(root).into_iter().map(path).collect()
}

fn times(path: &Path, accessed: i64, modified: i64) {
    let (accessed, modified) = (TimeSpec::new(accessed, 5), TimeSpec::new(modified, 7));
    let no_follow = UtimensatFlags::NoFollowSymlink;
    utimensat(nix::fcntl::AT_FDCWD, path, &accessed, &modified, no_follow).unwrap();
}

#[test]
fn modes_times_and_owner_are_those_the_tenant_needs() {
    let scene = Scene::with(&["folder/run"]);
    symlink("run", scene.at("folder/link")).unwrap();
    for (path, mode) in [("folder/run", 0o6_751), ("folder", 0o3_055), (".", 0o050)] {
        chmod(&scene.at(path), mode);
    }
    for path in ["folder/run", "folder/link", "folder", "."] {
        times(&scene.at(path), 5, 1_000_000_000);
    }
    let (source, target) = (scene.open(), scene.target("target"));
    let taken = without_rights_over_files({
        let target = target.clone();
        let all = rules(&["**"], &[]);
        move || {
            take_snapshot(
                &source,
                &all,
                &LIMITS,
                StopCheck::never(),
                (directory(&target).as_fd(), TENANT),
            )
        }
    });
    taken.unwrap();
    let modes = [("folder/run", 0o751), ("folder/link", 0o777), ("folder", 0o755), (".", 0o750)];
    for (path, mode) in modes {
        let entry = entry(&target.join(path));
        assert_eq!(entry.mode & 0o7777, mode, "{path}");
        assert_eq!(entry.modified, (1_000_000_000, 7), "{path}");
        assert_eq!(entry.owner, TENANT, "{path}");
    }
}

#[test]
fn the_source_is_left_as_it_was_down_to_its_access_times() {
    let scene = Scene::with(&["a/b/file", "a/venv/x", "empty/", ".git/config", "top"]);
    symlink("file", scene.at("a/b/link")).unwrap();
    let all = ["a/b/file", "a/b", "a/venv/x", "a/venv", "a", "empty", ".git", "top", "."];
    for path in all {
        times(&scene.at(path), 1_000, 2_000);
    }
    let accessed = || all.map(|path| fs::symlink_metadata(scene.at(path)).unwrap().atime());
    let changed = || all.map(|path| fs::symlink_metadata(scene.at(path)).unwrap().ctime());
    let before = (accessed(), changed());
    survey(&scene.open(), &rules(&["**"], &[]), &LIMITS, StopCheck::never()).unwrap();
    scene.take();
    assert_eq!((accessed(), changed()), before);
}

#[test]
fn excluded_entries_are_counted_by_rule_and_a_directory_once() {
    let scene = Scene::with(&[
        ".git/objects/x",
        "sub/.git",
        "venv/bin/python",
        "python/pyvenv.cfg",
        "python/lib/x.py",
        "target/debug/x",
        "sub/target",
        "sub/node_modules/a/main.js",
        "vendor/bundle/x",
        "vendor/kept",
        "sub/__pycache__/x.pyc",
        ".env",
        "sub/.ENV.local",
        "deep/er/secrets/key",
        "main.py",
        "main.log",
        "docs/a",
        "docs/b",
    ]);
    let rules = rules(&["**", ".git/**", ".env", "python/**"], &["*.log", "docs"]);
    let (target, taken) = scene.take_as(&rules, &LIMITS);
    let taken = taken.unwrap();
    let expected = [
        (ExcludedGroup::Vcs, 2),
        (ExcludedGroup::Virtualenv, 2),
        (ExcludedGroup::Build, 1),
        (ExcludedGroup::Dependencies, 2),
        (ExcludedGroup::Caches, 1),
        (ExcludedGroup::Secrets, 3),
        (ExcludedGroup::Request, 2),
    ];
    assert_eq!(taken.excluded, BTreeMap::from(expected));
    assert_eq!((taken.files, taken.bytes), (3, "sub/targetvendor/keptmain.py".len() as u64));
    let kept = ["deep/", "deep/er/", "main.py", "sub/", "sub/target", "vendor/", "vendor/kept"];
    assert_eq!(paths(&target), kept);
}

#[test]
fn visited_entries_that_are_not_included_are_counted() {
    let scene = Scene::with(&["src/a.py", "src/b.txt", "src/empty/", "src/in/c.txt", "docs/x/y"]);
    for (include, exclude, kept, left_out) in [
        (&["**"][..], &["**/*.txt"][..], 7, 2),
        // docs is passed over; src/empty and src/in are looked through in vain.
        (&["src/**/*.py"], &[], 2, 5),
        (&["src"], &[], 6, 1),
        (&["src/empty"], &[], 2, 4),
        (&["docs/**"], &[], 3, 1),
        (&[], &[], 0, 2),
    ] {
        let (target, taken) = scene.take_as(&rules(include, exclude), &LIMITS);
        let counted = taken.unwrap().excluded.remove(&ExcludedGroup::Request).unwrap_or(0);
        assert_eq!(paths(&target).len(), kept, "{include:?}: {:?}", paths(&target));
        assert_eq!(counted, left_out, "{include:?}");
    }
}

#[test]
fn only_links_that_stay_inside_are_kept() {
    let scene = Scene::with(&["a/file", "outside-is-here"]);
    let outside = scene.place.path().join("sentinel");
    fs::write(&outside, "untouched").unwrap();
    for (name, text) in [
        ("absolute", outside.to_str().unwrap()),
        ("a/up", "../../sentinel"),
        ("magic", "/proc/self/root"),
        ("self", "."),
        ("through", "self/../sentinel"),
    ] {
        symlink(text, scene.at(name)).unwrap();
    }
    for (name, text) in [("a/inner", "file"), ("a/across", "../outside-is-here"), ("gone", "x/y")] {
        symlink(text, scene.at(name)).unwrap();
    }
    let (target, taken) = scene.take();
    assert_eq!(taken.excluded, BTreeMap::from([(ExcludedGroup::OutsideLink, 4)]));
    assert_eq!(taken.files, 6);
    let kept = ["a/", "a/across", "a/file", "a/inner", "gone", "outside-is-here", "self"];
    assert_eq!(paths(&target), kept);
    assert_eq!(fs::read_link(target.join("a/across")).unwrap(), Path::new("../outside-is-here"));
}

#[test]
fn a_hostile_source_is_copied_without_its_traps() {
    let scene = Scene::new();
    mkfifo(&scene.at("fifo"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(scene.at("socket")).unwrap();
    mknod(&scene.at("device"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 5)).unwrap();
    let long = [b'x'; 255];
    let names: [&[u8]; 8] =
        [b"-rf", b"a\nb", b"\xff\xfe", b" ", b"*", b"...", b"{a", long.as_slice()];
    for name in names {
        let folder = scene.source.join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        mkfifo(&folder.join("fifo"), Mode::S_IRWXU).unwrap();
        fs::write(folder.join(OsStr::from_bytes(name)), name).unwrap();
        fs::hard_link(folder.join(OsStr::from_bytes(name)), folder.join("again")).unwrap();
    }
    let (scene, target, taken) = in_time(move || {
        let (target, taken) = scene.take();
        (scene, target, taken)
    });
    assert_eq!(taken.excluded, BTreeMap::from([(ExcludedGroup::Special, 11)]));
    assert_eq!(taken.files, 16);
    for name in names {
        let name = OsStr::from_bytes(name);
        let copy = target.join(name).join(name);
        assert_eq!(fs::read(&copy).unwrap(), name.as_bytes());
        assert_eq!(fs::metadata(&copy).unwrap().nlink(), 1);
        assert_eq!(fs::metadata(scene.source.join(name).join(name)).unwrap().nlink(), 2);
    }
}

#[test]
fn a_deep_source_is_copied_and_one_too_deep_for_patterns_refused() {
    let scene = Arc::new(Scene::new());
    let inner = Arc::clone(&scene);
    in_own_mounts(move || {
        // Gone with all its depth when the thread ends.
        mount_tmpfs(inner.place.path());
        let all = rules(&["**"], &[]);
        fs::create_dir(&inner.source).unwrap();
        make_deep(&inner.source, 3_000);
        let (target, taken) = inner.take();
        assert_eq!((taken.files, depth(&target)), (1, (3_000, true)));
        let few = SnapshotLimits { files_max: 2_999, ..LIMITS };
        let (_, refused) = inner.take_as(&all, &few);
        assert_eq!(limit(&refused), Some(TreeLimit::Directories { max: 2_999 }));

        fs::rename(&inner.source, inner.place.path().join("before")).unwrap();
        fs::create_dir(&inner.source).unwrap();
        make_deep(&inner.source, 8_300);
        let (_, refused) = inner.take_as(&all, &LIMITS);
        assert_eq!(limit(&refused), Some(TreeLimit::PathBytes { max: 16_384 }));
        assert!(refused.unwrap_err().to_string().len() < 2_000);
    });
}

fn limit(refused: &Result<impl Sized, WorkspaceError>) -> Option<TreeLimit> {
    match refused {
        Err(WorkspaceError::TooLarge { source, .. }) => Some(*source),
        _ => None,
    }
}

#[test]
fn mounts_inside_are_not_part_of_the_source() {
    let scene = Arc::new(Scene::with(&["file", "point/"]));
    let inner = Arc::clone(&scene);
    in_own_mounts(move || {
        let none = None::<&str>;
        mount(Some("/dev/null"), &inner.at("file"), none, MsFlags::MS_BIND, none).unwrap();
        mount_tmpfs(&inner.at("point"));
        fs::write(inner.at("point/inside"), "").unwrap();
        let (target, taken) = inner.take();
        assert_eq!(taken.excluded, BTreeMap::from([(ExcludedGroup::Special, 2)]));
        assert_eq!(paths(&target), Vec::<String>::new());
    });
}

#[test]
fn each_limit_ends_survey_and_snapshot_alike() {
    let scene = Scene::with(&["folder/file", "folder/inner/"]);
    symlink("file", scene.at("folder/link")).unwrap();
    let bytes = "folder/file".len() as u64;
    let whole = SnapshotLimits { files_max: 2, bytes_max: bytes };
    let all = rules(&["**"], &[]);
    assert_eq!(scene.take_as(&all, &whole).1.unwrap().bytes, bytes);
    for (limits, expected, path) in [
        (
            SnapshotLimits { files_max: 1, ..whole },
            TreeLimit::Directories { max: 1 },
            "folder/inner",
        ),
        (
            SnapshotLimits { bytes_max: bytes - 1, ..whole },
            TreeLimit::Bytes { max: bytes - 1 },
            "folder/file",
        ),
        (SnapshotLimits { files_max: 0, ..whole }, TreeLimit::Directories { max: 0 }, "folder"),
    ] {
        let expected = WorkspaceError::TooLarge { path: path.into(), source: expected };
        assert_eq!(survey(&scene.open(), &all, &limits, StopCheck::never()), Err(expected.clone()));
        assert_eq!(scene.take_as(&all, &limits).1, Err(expected));
    }
    fs::remove_dir(scene.at("folder/inner")).unwrap();
    let (_, refused) = scene.take_as(&all, &SnapshotLimits { files_max: 1, ..whole });
    assert_eq!(limit(&refused), Some(TreeLimit::Files { max: 1 }));
}

#[test]
fn a_survey_counts_what_a_snapshot_copies() {
    let scene = Scene::with(&["a/b/file", "a/c", "empty/", ".git/x", "docs/d"]);
    fs::write(scene.at("large"), vec![b'x'; 4_097]).unwrap();
    symlink("c", scene.at("a/link")).unwrap();
    let surveyed =
        survey(&scene.open(), &rules(&["**"], &["docs"]), &LIMITS, StopCheck::never()).unwrap();
    assert_eq!(surveyed, Survey { room_bytes: 5 * 4_096, room_inodes: 7 });
    assert_eq!(
        survey(&scene.open(), &rules(&["none"], &[]), &LIMITS, StopCheck::never()),
        Ok(Survey::default())
    );
}

#[test]
fn holes_stay_holes_and_count_with_their_size() {
    let scene = Scene::new();
    let file = File::create(scene.at("sparse")).unwrap();
    file.write_all_at(b"middle", 3 << 20).unwrap();
    file.set_len(8 << 20).unwrap();
    let (target, sparse) = scene.take();
    assert_eq!(sparse.bytes, 8 << 20);
    assert!(fs::metadata(target.join("sparse")).unwrap().blocks() * 512 <= 1 << 20);
    let contents = fs::read(scene.at("sparse")).unwrap();
    assert_eq!(fs::read(target.join("sparse")).unwrap(), contents);
    // Without its holes it is the same snapshot.
    fs::write(scene.at("sparse"), contents).unwrap();
    assert_eq!(scene.digest(), sparse.digest);

    file.set_len(1 << 40).unwrap();
    let refused = in_time(move || scene.take_as(&rules(&["**"], &[]), &LIMITS).1);
    assert_eq!(limit(&refused), Some(TreeLimit::Bytes { max: LIMITS.bytes_max }));
}

#[test]
fn a_digest_depends_only_on_contents() {
    let scene = Scene::with(&["a/run", "b", "empty/"]);
    chmod(&scene.at("a/run"), 0o644);
    let first = scene.digest();
    assert_eq!(first.len(), 64);
    let same: [(&str, &dyn Fn()); 5] = [
        ("a rerun", &|| {}),
        ("times", &|| times(&scene.at("b"), 5, 6)),
        ("an owner", &|| chown(scene.at("b"), Some(7), Some(8)).unwrap()),
        ("who may write", &|| chmod(&scene.at("b"), 0o600)),
        ("what is left out", &|| scene.add("a/.git/x")),
    ];
    for (what, change) in same {
        change();
        assert_eq!(scene.digest(), first, "{what}");
    }
    // The same files, made in another order and at another place.
    let other = Scene::with(&["empty/", "b", "a/run"]);
    assert_eq!(other.digest(), first);

    let mut seen = vec![first];
    let differing: [(&str, &dyn Fn()); 7] = [
        ("contents", &|| fs::write(scene.at("b"), "B").unwrap()),
        ("who may execute", &|| chmod(&scene.at("a/run"), 0o744)),
        ("a path", &|| fs::rename(scene.at("b"), scene.at("c")).unwrap()),
        ("an empty directory less", &|| fs::remove_dir(scene.at("empty")).unwrap()),
        ("a link for a file", &|| {
            fs::remove_file(scene.at("c")).unwrap();
            symlink("a/run", scene.at("c")).unwrap();
        }),
        ("a link's text", &|| {
            fs::remove_file(scene.at("c")).unwrap();
            symlink("a", scene.at("c")).unwrap();
        }),
        ("a directory for a link", &|| {
            fs::remove_file(scene.at("c")).unwrap();
            fs::create_dir(scene.at("c")).unwrap();
        }),
    ];
    for (what, change) in differing {
        change();
        let digest = scene.digest();
        assert!(!seen.contains(&digest), "{what}");
        seen.push(digest);
    }
}

#[test]
fn the_digest_has_the_documented_encoding() {
    let scene = Scene::with(&["a/run"]);
    chmod(&scene.at("a"), 0o700);
    chmod(&scene.at("a/run"), 0o750);
    let mut bytes = Vec::new();
    for (kind, mode, path, holds) in
        [(b'd', 0o100_u32, "a", String::new()), (b'f', 0o110, "a/run", sha256_of(b"a/run"))]
    {
        bytes.push(kind);
        bytes.extend(mode.to_be_bytes());
        for part in [path, &holds] {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
    }
    assert_eq!(scene.digest(), sha256_of(&bytes));
}
