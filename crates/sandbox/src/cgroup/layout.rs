//! Locates the cgroups of this process, from the texts of the kernel.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A mount table longer than this (100,000 mounts) is read only in part.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// More than most texts contain: a small buffer takes one call per few lines.
const TEXT_BYTES: usize = 16 << 10;

/// The groups of this process, one per mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CgroupLayout {
    /// Version 1 hierarchies that have controllers.
    pub(super) v1: Vec<V1Hierarchy>,
    /// The unified hierarchy.
    pub(super) v2: GroupPath,
}

/// A version 1 hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct V1Hierarchy {
    pub(super) controllers: Vec<String>,
    pub(super) place: GroupPath,
}

/// The directory of this process's group, or why it is not reachable.
pub(super) type GroupPath = Result<PathBuf, &'static str>;

pub(super) const NOT_MOUNTED: &str = "not mounted";
pub(super) const OUT_OF_SIGHT: &str = "our own group is outside what is mounted here";

impl CgroupLayout {
    /// Parses the text of `/proc/self/mountinfo` and of `/proc/self/cgroup`. Lines not in the
    /// kernel's format are skipped.
    pub(super) fn parse(mountinfo: &str, own_groups: &str) -> Self {
        let mounts: Vec<CgroupMount<'_>> =
            mountinfo.lines().filter_map(CgroupMount::parse).collect();
        let mut layout = Self { v1: Vec::new(), v2: Err(NOT_MOUNTED) };
        for line in own_groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(id), Some(controllers), Some(own)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let controllers: Vec<&str> = controllers.split(',').filter(|c| !c.is_empty()).collect();
            if id == "0" && controllers.is_empty() {
                layout.v2 = locate(&mounts, "cgroup2", &[], own);
            } else if !controllers.iter().any(|c| c.starts_with("name=")) {
                let place = locate(&mounts, "cgroup", &controllers, own);
                let controllers = controllers.into_iter().map(str::to_owned).collect();
                layout.v1.push(V1Hierarchy { controllers, place });
            }
        }
        layout
    }

    /// The group of this process in the version 1 hierarchy of `controller`.
    pub(super) fn v1_place(&self, controller: &str) -> Result<&Path, &'static str> {
        let has = |hierarchy: &&V1Hierarchy| hierarchy.controllers.iter().any(|c| c == controller);
        let hierarchy = self.v1.iter().find(has).ok_or(NOT_MOUNTED)?;
        hierarchy.place.as_deref().map_err(|reason| *reason)
    }
}

/// A cgroup line of mountinfo.
struct CgroupMount<'a> {
    root: PathBuf,
    mountpoint: PathBuf,
    writable: bool,
    kind: &'a str,
    super_options: Vec<&'a str>,
}

impl<'a> CgroupMount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, mountpoint, options) = (before.next()?, before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, _source, super_options) = (after.next()?, after.next()?, after.next()?);
        let super_options: Vec<&str> = super_options.split(',').collect();
        let read_only = options.split(',').any(|o| o == "ro") || super_options.contains(&"ro");
        matches!(kind, "cgroup" | "cgroup2").then(|| Self {
            root: unescape(root),
            mountpoint: unescape(mountpoint),
            writable: !read_only,
            kind,
            super_options,
        })
    }

    /// The directory of the group `own`, if this mount shows it. A path through `..` is outside of
    /// our cgroup namespace.
    fn directory_of(&self, own: &Path) -> Option<PathBuf> {
        let below = own.strip_prefix(&self.root).ok()?;
        let leaves = |path: &Path| path.components().any(|part| part.as_os_str() == "..");
        (!leaves(&self.root) && !leaves(own)).then(|| {
            // Joining an empty path would add a slash.
            self.mountpoint.components().chain(below.components()).collect()
        })
    }
}

/// The directory of group `own` in the hierarchy of this kind with these controllers. A writable
/// mount is preferred to a read-only one, and a later mount to an earlier one, which it may cover.
fn locate(mounts: &[CgroupMount<'_>], kind: &str, controllers: &[&str], own: &str) -> GroupPath {
    let same: Vec<&CgroupMount<'_>> = mounts
        .iter()
        .filter(|m| m.kind == kind && controllers.iter().all(|c| m.super_options.contains(c)))
        .collect();
    if same.is_empty() {
        return Err(NOT_MOUNTED);
    }
    let shown = same.iter().filter_map(|m| Some((m.writable, m.directory_of(Path::new(own))?)));
    shown.max_by_key(|(writable, _)| *writable).map(|(_, path)| path).ok_or(OUT_OF_SIGHT)
}

/// Undoes mountinfo's octal escapes of space, tab, newline and backslash.
pub(super) fn unescape(field: &str) -> PathBuf {
    let mut plain = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let digits = after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok());
        match digits {
            Some(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    PathBuf::from(plain)
}

/// Reads a file of `/proc`. Mount points that are not UTF-8 cannot be used and are skipped.
pub(super) fn read_text(path: &str) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(TEXT_BYTES);
    File::open(path)?.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
