//! Trees that are saved and restored, on real file systems.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::SystemTime;

use nix::sys::stat::Mode;
use nix::unistd::{chown, mkfifo};

use super::entry::{EXTENT_BYTES_MAX, Extent, ExtentDigest};
use super::keeping::{ExtentSink, ExtentSource, SavedTreeError};
use super::manifest::ManifestReader;
use super::restore::restore_tree;
use super::write::{SaveOptions, SavedTotals, save_tree, save_tree_within};
use crate::copy::copy_file::seek;
use crate::testing::{TENANT, chmod, depth, directory, in_memory, make_deep, picture};
use crate::walk::stop_check::StopCheck;

const LIFE: [u8; 16] = [7; 16];

/// Extents in memory.
#[derive(Default)]
struct Extents {
    kept: BTreeMap<ExtentDigest, Vec<u8>>,
    /// How many were given with their bytes, and how many only named.
    given: usize,
    named: usize,
}

impl ExtentSink for Extents {
    fn keep(&mut self, digest: &ExtentDigest, bytes: &[u8]) -> io::Result<()> {
        self.given += 1;
        self.kept.insert(*digest, bytes.to_vec());
        Ok(())
    }

    fn name(&mut self, _extent: &Extent) {
        self.named += 1;
    }
}

impl ExtentSource for Extents {
    fn read(&mut self, digest: &ExtentDigest, bytes: &mut [u8]) -> io::Result<()> {
        let kept = self.kept.get(digest).ok_or(io::ErrorKind::NotFound)?;
        bytes.copy_from_slice(kept);
        Ok(())
    }
}

/// Far enough ahead that every file counts as settled.
fn later() -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    i64::try_from(now).unwrap() + 60
}

fn save(root: &Path, extents: &mut Extents, previous: Option<&[u8]>) -> (Vec<u8>, SavedTotals) {
    let previous = previous.map(|bytes| ManifestReader::open(bytes).unwrap());
    let options =
        SaveOptions { previous, life: LIFE, frozen_at: later(), stop: StopCheck::never() };
    let mut manifest = Vec::new();
    let totals = save_tree(directory(root).as_fd(), &mut manifest, extents, options).unwrap();
    (manifest, totals)
}

fn restore(root: &Path, manifest: &[u8], extents: &mut Extents) -> Result<(), SavedTreeError> {
    restore_tree(directory(root).as_fd(), manifest, extents, TENANT, StopCheck::never())
}

/// A tree with an entry of every kind, of the tenant's and of root's.
fn prepare(root: &Path) {
    for name in ["a", "a/b", "a-b", "locked"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    fs::write(root.join("a/b/file"), "contents").unwrap();
    fs::write(root.join("a/empty"), "").unwrap();
    fs::write(root.join("a-b/large"), vec![5; 2 * EXTENT_BYTES_MAX + 1]).unwrap();
    fs::write(root.join("locked/own"), "of root").unwrap();
    fs::hard_link(root.join("a/b/file"), root.join("a-b/other-name")).unwrap();
    fs::hard_link(root.join("a/b/file"), root.join("z")).unwrap();
    symlink("../nowhere", root.join("a/link")).unwrap();
    mkfifo(&root.join("a/fifo"), Mode::S_IRUSR | Mode::S_IWGRP).unwrap();
    for name in ["a", "a/b", "a-b", "a/b/file", "a/empty", "a-b/large", "a/fifo"] {
        let (uid, gid) = (TENANT.uid.into(), TENANT.gid.into());
        chown(&root.join(name), Some(uid), Some(gid)).unwrap();
    }
    std::os::unix::fs::lchown(root.join("a/link"), Some(TENANT.uid), Some(TENANT.gid)).unwrap();
    chmod(&root.join("a/b/file"), 0o4751);
    chmod(&root.join("a"), 0o1700);
    chmod(&root.join("locked/own"), 0o444);
    chmod(&root.join("locked"), 0o555);
}

#[test]
fn a_restored_tree_is_the_one_that_was_saved() {
    let [from, to] = [in_memory(), in_memory()];
    prepare(from.path());
    fs::create_dir(to.path().join("was-there")).unwrap();
    let mut extents = Extents::default();
    let (manifest, totals) = save(from.path(), &mut extents, None);
    assert_eq!((totals.entries, totals.files), (12, 4));
    restore(to.path(), &manifest, &mut extents).unwrap();
    assert_eq!(picture(to.path()), picture(from.path()));
    let inode = |name: &str| fs::metadata(to.path().join(name)).unwrap().ino();
    assert_eq!((inode("a/b/file"), inode("a/b/file")), (inode("a-b/other-name"), inode("z")));
    assert_eq!(fs::metadata(to.path().join("z")).unwrap().nlink(), 3);
}

#[test]
fn a_second_save_reads_only_files_that_changed_and_names_what_stays() {
    let root = in_memory();
    prepare(root.path());
    let mut extents = Extents::default();
    let (first, _) = save(root.path(), &mut extents, None);
    assert_eq!((extents.given, extents.named), (5, 0));
    fs::write(root.path().join("a/new"), "new").unwrap();
    let (second, _) = save(root.path(), &mut extents, Some(&first));
    assert_eq!((extents.given, extents.named), (6, 5));
    let large = fs::OpenOptions::new().write(true).open(root.path().join("a-b/large")).unwrap();
    large.write_all_at(b"x", EXTENT_BYTES_MAX as u64).unwrap();
    let before: Vec<_> = extents.kept.keys().copied().collect();
    let (third, _) = save(root.path(), &mut extents, Some(&second));
    // The first and the second extent of the large file were equal.
    assert_eq!(extents.kept.len(), before.len() + 1);
    let to = in_memory();
    restore(to.path(), &third, &mut extents).unwrap();
    assert_eq!(picture(to.path()), picture(root.path()));
}

#[test]
fn holes_stay_holes_and_a_huge_hole_costs_nothing() {
    let [from, to] = [in_memory(), in_memory()];
    let path = from.path().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"last", 1 << 40).unwrap();
    let mut extents = Extents::default();
    let (manifest, totals) = save(from.path(), &mut extents, None);
    assert!(manifest.len() < 1000 && totals.bytes == (1 << 40) + 4, "{totals:?}");
    restore(to.path(), &manifest, &mut extents).unwrap();
    let copy = fs::File::open(to.path().join("sparse")).unwrap();
    assert_eq!(copy.metadata().unwrap().blocks(), file.metadata().unwrap().blocks());
    let data = seek(&copy, 1 << 20, nix::unistd::Whence::SeekData).unwrap();
    assert_eq!(data, Some(1 << 40));
    let mut end = [0; 4];
    copy.read_exact_at(&mut end, 1 << 40).unwrap();
    assert_eq!(&end, b"last");
}

#[test]
fn a_deep_tree_takes_no_more_than_its_names() {
    let [from, to] = [in_memory(), in_memory()];
    make_deep(from.path(), 3_000);
    let mut extents = Extents::default();
    let (manifest, _) = save(from.path(), &mut extents, None);
    assert!(manifest.len() < 3_000 * 64, "{}", manifest.len());
    restore(to.path(), &manifest, &mut extents).unwrap();
    assert_eq!(depth(to.path()), (3_000, true));
}

#[test]
fn a_tree_whose_paths_are_too_long_together_is_refused() {
    let from = in_memory();
    make_deep(from.path(), 300);
    let save = |paths_bytes_max| {
        let (root, mut extents) = (directory(from.path()), Extents::default());
        let previous: Option<ManifestReader<&[u8]>> = None;
        let options =
            SaveOptions { previous, life: LIFE, frozen_at: later(), stop: StopCheck::never() };
        let mut manifest = Vec::new();
        save_tree_within(root.as_fd(), &mut manifest, &mut extents, options, paths_bytes_max)
    };
    save(1 << 20).unwrap();
    let refused = save(1 << 10).unwrap_err();
    assert!(refused.to_string().contains("together"), "{refused}");
}

#[test]
fn whatever_is_missing_or_damaged_is_an_error() {
    let [from, to] = [in_memory(), in_memory()];
    prepare(from.path());
    let mut extents = Extents::default();
    let (manifest, _) = save(from.path(), &mut extents, None);
    for cut in 0..manifest.len() {
        let end = ManifestReader::open(&manifest[..cut]).and_then(|mut cut| {
            while cut.advance()?.is_some() {}
            Ok(())
        });
        assert!(end.is_err(), "cut at {cut}");
    }
    let mut flipped = manifest.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    assert!(restore(to.path(), &flipped, &mut extents).is_err());
    extents.kept.clear();
    let missing = restore(to.path(), &manifest, &mut extents);
    assert!(matches!(missing, Err(SavedTreeError::Kept(_))), "{missing:?}");
}
