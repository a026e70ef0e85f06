//! Properties of walks, copies and removals of generated trees.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::testing::{TENANT, TreeEntry, chmod, directory, in_memory, picture};
use crate::walk::{FileKind, TreeWalk, WalkEvent, as_path};
use crate::{
    Copied, Removal, Template, TreeLimit, TreeLimits, WorkspaceError, copy_tree, remove_tree,
};

/// A tree small enough to create a few dozen times.
#[derive(Debug, Clone)]
enum Node {
    File { contents: Vec<u8>, mode: u32 },
    Link { text: Vec<u8> },
    Fifo,
    Folder { nodes: Vec<(OsString, Node)>, mode: u32 },
}

/// Any bytes that the kernel accepts as a name: newlines, invalid UTF-8, command options.
fn name() -> impl Strategy<Value = OsString> {
    let byte = any::<u8>().prop_filter("a byte of a name", |byte| !matches!(byte, 0 | b'/'));
    let any_name = vec(byte, 1..12)
        .prop_filter("a name of its own", |name| !matches!(name.as_slice(), b"." | b".."));
    prop_oneof![
        20 => any_name,
        1 => Just(b".git".to_vec()),
        1 => Just(b"a\nb".to_vec()),
        1 => Just(b"-rf".to_vec()),
        1 => Just(vec![b'x'; 255]),
    ]
    .prop_map(OsString::from_vec)
}

fn node() -> impl Strategy<Value = Node> {
    let text = vec(1..=255_u8, 1..40);
    let leaf = prop_oneof![
        6 => (vec(any::<u8>(), 0..300), 0..0o1_0000_u32)
            .prop_map(|(contents, mode)| Node::File { contents, mode }),
        2 => text.prop_map(|text| Node::Link { text }),
        1 => Just(Node::Fifo),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        (btree_map(name(), inner, 0..6), 0..0o1_0000_u32)
            .prop_map(|(nodes, mode)| Node::Folder { nodes: nodes.into_iter().collect(), mode })
    })
}

/// A tree below nested directories with neighbours before and after them: deeper than the number of
/// directories that a walk keeps open, so that it must reopen parents.
fn tree() -> impl Strategy<Value = Node> {
    (btree_map(name(), node(), 0..6), 0..40_usize).prop_map(|(nodes, levels)| {
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        for _ in 0..levels {
            let inner = Node::Folder { nodes, mode: 0o700 };
            let beside = || Node::File { contents: b"beside".to_vec(), mode: 0o600 };
            nodes = vec![("d".into(), inner), ("a".into(), beside()), ("z".into(), beside())];
        }
        Node::Folder { nodes, mode: 0o755 }
    })
}

fn make(path: &Path, node: &Node) {
    match node {
        Node::Link { text } => symlink(OsStr::from_bytes(text), path).unwrap(),
        Node::Fifo => mkfifo(path, Mode::S_IRWXU).unwrap(),
        Node::File { contents, mode } => {
            fs::write(path, contents).unwrap();
            chmod(path, *mode);
        }
        Node::Folder { nodes, mode } => {
            fs::create_dir(path).unwrap();
            for (name, node) in nodes {
                make(&path.join(name), node);
            }
            chmod(path, *mode);
        }
    }
}

/// The standard library's view of a tree, without `.git`.
fn without_git(root: &Path) -> BTreeMap<PathBuf, TreeEntry> {
    let mut entries = picture(root);
    entries.retain(|path, _| !path.iter().any(|part| part == ".git"));
    entries
}

fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().file_type().is_fifo()
}

/// The paths of all entries that a walk returns.
fn walked(root: &Path) -> Vec<PathBuf> {
    let opened = directory(root);
    let mut walk = TreeWalk::to_read(opened.as_fd(), u64::MAX).unwrap();
    let (mut here, mut seen) = (PathBuf::new(), Vec::new());
    while let Some(event) = walk.advance().unwrap() {
        match event {
            WalkEvent::Enter { name, .. } => {
                here.push(as_path(&name));
                seen.push(here.clone());
            }
            WalkEvent::Leave { name } => {
                assert_eq!(here.file_name().unwrap(), as_path(&name).as_os_str());
                here.pop();
            }
            WalkEvent::Entry { name, kind } => {
                let path = here.join(as_path(&name));
                assert_eq!(kind == FileKind::Special, is_fifo(&root.join(&path)));
                seen.push(path);
            }
            WalkEvent::Unopened { name, errno } => panic!("{name:?}: {errno}"),
        }
        assert_eq!(walk.depth(), here.iter().count());
    }
    seen
}

fn copy(source: &Path, target: &Path, limits: &TreeLimits) -> Result<Copied, WorkspaceError> {
    fs::create_dir(target).unwrap();
    copy_tree(directory(source).as_fd(), directory(target).as_fd(), TENANT, limits)
}

fn remove(parent: &Path, name: &str) -> Removal {
    remove_tree(directory(parent).as_fd(), OsStr::new(name)).unwrap()
}

fn limit_crossed(refused: &Result<impl Sized, WorkspaceError>) -> Option<TreeLimit> {
    match refused {
        Err(WorkspaceError::TooLarge { source, .. }) => Some(*source),
        _ => None,
    }
}

proptest! {
    #![proptest_config(Config { cases: 64, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_walk_returns_every_entry_exactly_once(tree in tree()) {
        let place = in_memory();
        let root = place.path().join("root");
        make(&root, &tree);
        let mut seen = walked(&root);
        seen.sort();
        let expected: Vec<PathBuf> = without_git(&root).into_keys().collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn a_copy_equals_its_source_and_its_removal_leaves_nothing(tree in tree()) {
        let place = in_memory();
        let (source, target) = (place.path().join("source"), place.path().join("target"));
        make(&source, &tree);
        let copied = copy(&source, &target, &TreeLimits::default()).unwrap();

        let mut expected = without_git(&source);
        let entries = expected.len();
        expected.retain(|path, _| !is_fifo(&source.join(path)));
        let (mut files, mut bytes) = (0, 0);
        for (path, entry) in &mut expected {
            let kind = fs::symlink_metadata(source.join(path)).unwrap().file_type();
            entry.owner = TENANT;
            if !kind.is_symlink() {
                entry.mode &= !0o7000;
            }
            if kind.is_dir() {
                entry.mode |= 0o700;
            } else {
                files += 1;
            }
            if kind.is_file() {
                bytes += entry.contents.len() as u64;
            }
        }
        let actual = picture(&target);
        let skipped = (entries - expected.len()) as u64;
        prop_assert_eq!(copied, Copied { files, bytes, skipped });
        prop_assert_eq!(&actual, &expected);
        for (name, root) in [("target", &target), ("source", &source)] {
            let whole = Removal { removed: picture(root).len() as u64 + 1, left: 0 };
            prop_assert_eq!(remove(place.path(), name), whole);
            prop_assert!(!root.exists());
        }
    }

    #[test]
    fn each_limit_is_exact_to_the_entry_byte_and_level(tree in tree()) {
        let place = in_memory();
        let source = place.path().join("source");
        make(&source, &tree);
        let entries = without_git(&source);
        let is_dir = |path: &&PathBuf| source.join(path).symlink_metadata().unwrap().is_dir();
        let is_file = |path: &Path| source.join(path).symlink_metadata().unwrap().is_file();
        let depth_max = entries.keys().filter(is_dir).map(|path| path.iter().count()).max();
        let contents = entries.iter().filter(|(path, _)| is_file(path));
        let exact = TreeLimits {
            entries_max: entries.len() as u64,
            bytes_max: contents.map(|(_, entry)| entry.contents.len() as u64).sum(),
            depth_max: depth_max.unwrap_or(0) as u64,
        };
        prop_assert_eq!(Template::scan_within(&source, &exact).unwrap().bytes, exact.bytes_max);
        let whole = copy(&source, &place.path().join("whole"), &exact).unwrap();
        prop_assert_eq!(whole.bytes, exact.bytes_max);

        let TreeLimits { entries_max, bytes_max, depth_max } = exact;
        let less = [
            entries_max.checked_sub(1).map(|max| {
                (TreeLimits { entries_max: max, ..exact }, TreeLimit::Entries { max })
            }),
            bytes_max.checked_sub(1).map(|max| {
                (TreeLimits { bytes_max: max, ..exact }, TreeLimit::Bytes { max })
            }),
            depth_max.checked_sub(1).map(|max| {
                (TreeLimits { depth_max: max, ..exact }, TreeLimit::Depth { max })
            }),
        ];
        for (number, (limits, limit)) in less.into_iter().flatten().enumerate() {
            prop_assert_eq!(limit_crossed(&Template::scan_within(&source, &limits)), Some(limit));
            let target = place.path().join(number.to_string());
            prop_assert_eq!(limit_crossed(&copy(&source, &target, &limits)), Some(limit));
        }
    }
}
