//! Properties of snapshots of generated sources.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;

use super::{
    SnapshotContents, SnapshotLimits, SnapshotRules, SourceDir, Survey, survey, take_snapshot,
};
use crate::testing::{TENANT, directory, in_memory, picture};
use crate::walk::stop_check::StopCheck;
use cofferdam_core::job::{ExcludedGroup, excluded_group};
use cofferdam_core::values::glob::Globs;

const LIMITS: SnapshotLimits = SnapshotLimits { files_max: 10_000, bytes_max: 1 << 20 };
/// Few, so that links lead to something and patterns match, and some that are never taken.
const NAMES: [&str; 7] = ["a", "b", "c", "a.log", ".git", "target", ".env"];

#[derive(Debug, Clone)]
enum Node {
    File { mode: u32 },
    Link { text: String },
    Fifo,
    Folder { nodes: BTreeMap<&'static str, Node> },
}

/// A link that goes up and down through few names, and now and then from the top.
fn link() -> impl Strategy<Value = Node> {
    let part = select(vec!["a", "b", "c", ".", "..", "..", ""]);
    let parts = vec(part, 1..6).prop_map(|parts| parts.join("/"));
    parts
        .prop_filter("a link has a text", |text| !text.is_empty())
        .prop_map(|text| Node::Link { text })
}

fn folder() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        3 => (0..0o1_0000_u32).prop_map(|mode| Node::File { mode: mode | 0o400 }),
        3 => link(),
        1 => Just(Node::Fifo),
    ];
    let node = leaf.prop_recursive(4, 60, 5, |inner| {
        btree_map(select(&NAMES[..]), inner, 0..5).prop_map(|nodes| Node::Folder { nodes })
    });
    btree_map(select(&NAMES[..]), node, 0..7).prop_map(|nodes| Node::Folder { nodes })
}

fn patterns() -> impl Strategy<Value = Vec<String>> {
    let part = select(vec!["a", "b", "*", "**", "*.log", "{a,b}", "[ac]"]);
    vec(vec(part, 1..4).prop_map(|parts| parts.join("/")), 0..4)
}

fn make(path: &Path, node: &Node) {
    match node {
        Node::Link { text } => symlink(text, path).unwrap(),
        Node::Fifo => mkfifo(path, Mode::S_IRWXU).unwrap(),
        Node::File { mode } => {
            fs::write(path, path.file_name().unwrap().as_encoded_bytes()).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        Node::Folder { nodes } => {
            fs::create_dir(path).unwrap();
            for (name, node) in nodes {
                make(&path.join(name), node);
            }
        }
    }
}

fn take(source: &Path, rules: &SnapshotRules, target: &Path) -> SnapshotContents {
    fs::create_dir(target).unwrap();
    let source = &SourceDir::open(source).unwrap();
    take_snapshot(source, rules, &LIMITS, StopCheck::never(), (directory(target).as_fd(), TENANT))
        .unwrap()
}

/// Whether a file, fifo or link at `path` is selected, judged by its path only.
fn is_taken(path: &Path, include: &Globs, exclude: &Globs) -> bool {
    let above: Vec<_> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    let is_always_out = |part: &&Path| {
        let parent = part.parent().and_then(Path::file_name).unwrap_or_default();
        let name = part.file_name().unwrap_or_default();
        let (parent, name) = (parent.as_encoded_bytes(), name.as_encoded_bytes());
        excluded_group(parent, name, *part != path).is_some()
    };
    above.iter().any(|part| include.matches(part))
        && !above.iter().any(|part| exclude.matches(part))
        && !above.iter().any(is_always_out)
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn no_link_of_a_copy_leads_out_of_it_however_many_it_goes_through(tree in folder()) {
        let place = in_memory();
        let (source, target) = (place.path().join("source"), place.path().join("target"));
        make(&source, &tree);
        // What the links would find if they led out.
        for name in ["a", "b", "c"] {
            make(&place.path().join(name), &Node::File { mode: 0o600 });
        }
        let rules = SnapshotRules::parse(&["**".to_owned()], &[]).unwrap();
        take(&source, &rules, &target);
        for path in picture(&target).into_keys() {
            let path = target.join(path);
            if let Ok(leads_to) = path.canonicalize() {
                prop_assert!(leads_to.starts_with(&target), "{path:?} leads to {leads_to:?}");
            }
        }
    }

    #[test]
    fn a_copy_holds_what_its_rules_say_and_another_is_the_same(
        tree in folder(), include in patterns(), exclude in patterns(),
    ) {
        let place = in_memory();
        let at = |name: &str| place.path().join(name);
        make(&at("source"), &tree);
        let rules = SnapshotRules::parse(&include, &exclude).unwrap();
        let taken = take(&at("source"), &rules, &at("one"));

        let (include, exclude) = (Globs::parse(&include).unwrap(), Globs::parse(&exclude).unwrap());
        let files = |root: &Path| -> Vec<PathBuf> {
            let is_directory = |path: &Path| root.join(path).symlink_metadata().unwrap().is_dir();
            picture(root).into_keys().filter(|path| !is_directory(path)).collect()
        };
        let mut expected = files(&at("source"));
        expected.retain(|path| is_taken(path, &include, &exclude));
        let copied = files(&at("one"));
        // Links out and fifos are the only others.
        let count = |group| taken.excluded.get(&group).copied().unwrap_or(0);
        let others = count(ExcludedGroup::Special) + count(ExcludedGroup::OutsideLink);
        prop_assert!(copied.iter().all(|path| expected.contains(path)), "{copied:?} {expected:?}");
        prop_assert_eq!(copied.len() as u64, taken.files);
        prop_assert_eq!(expected.len() as u64, taken.files + others);

        let entries = picture(&at("one")).len() as u64;
        let Survey { room_bytes, room_inodes } = survey(&SourceDir::open(&at("source")).unwrap(), &rules, &LIMITS, StopCheck::never()).unwrap();
        prop_assert_eq!(room_inodes, entries);
        prop_assert!(room_bytes >= taken.bytes);
        // A copy of the copy with everything is the same snapshot.
        let all = SnapshotRules::parse(&["**".to_owned()], &[]).unwrap();
        prop_assert_eq!(take(&at("one"), &all, &at("two")).digest, taken.digest);
    }
}
