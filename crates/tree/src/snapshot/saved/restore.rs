//! Makes a tree again from its manifest and its extents.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, fstat, futimens, mkdirat,
    mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{
    Gid, Uid, UnlinkatFlags, fchown, fchownat, ftruncate, linkat, symlinkat, unlinkat,
};

use super::codec::damaged;
use super::entry::{EXTENT_BYTES_MAX, EntryKind, EntryOwner, EntryTime, SavedEntry, SavedFile};
use super::keeping::{ExtentSource, SavedTreeError};
use super::manifest::ManifestReader;
use crate::error::{During, WorkspaceFault};
use crate::remove::remove_tree;
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::path_stack::PathStack;
use crate::walk::stop_check::StopCheck;
use cofferdam_core::values::owner::Owner;

/// Makes the tree of `manifest` below `root`, in place of what is there. The tenant's entries get the owner
/// `owner`. Nothing else may use the files below `root` meanwhile.
///
/// # Errors
/// A step failed, the work was stopped, or something of the saved tree is missing or damaged. What was made
/// until then stays.
pub fn restore_tree(
    root: BorrowedFd<'_>,
    manifest: impl Read,
    source: &mut dyn ExtentSource,
    owner: Owner,
    stop: StopCheck<'_>,
) -> Result<(), SavedTreeError> {
    clear(root)?;
    let mut manifest = ManifestReader::open(manifest)?;
    let mut restoring = Restoring {
        root,
        directories: DirStack::new(root),
        path: PathStack::default(),
        entered: Vec::new(),
        unsettled: vec![BTreeMap::new()],
        groups: BTreeSet::new(),
        source,
        owner,
        buffer: vec![0; EXTENT_BYTES_MAX],
    };
    while let Some(entry) = manifest.advance()? {
        let at = |fault: WorkspaceFault| fault.at(OsStr::from_bytes(&entry.path));
        stop.check().map_err(at)?;
        restoring.add(&entry)?;
    }
    restoring.finish()
}

/// Removes everything in `root`.
fn clear(root: BorrowedFd<'_>) -> Result<(), SavedTreeError> {
    let at_root = |fault: WorkspaceFault| fault.at(".");
    let mut names: Vec<CString> = Vec::new();
    for entry in open_beneath::open_listing(root).during("list").map_err(at_root)? {
        let entry = entry.during("list").map_err(at_root)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        let removal = remove_tree(root, OsStr::from_bytes(name.to_bytes()))?;
        let left = if removal.left > 0 { Err(Errno::ENOTEMPTY) } else { Ok(()) };
        left.during("remove").map_err(at_root)?;
    }
    Ok(())
}

/// What a directory gets once everything is in it.
#[derive(Debug, Clone, Copy)]
struct RestoredAttributes {
    owner: Owner,
    mode: Mode,
    modified: EntryTime,
}

struct Restoring<'root, 'calls> {
    root: BorrowedFd<'root>,
    directories: DirStack<'root>,
    path: PathStack,
    /// Of the directories on the path.
    entered: Vec<RestoredAttributes>,
    /// For the root and each directory on the path: the directories in it that have no entries yet.
    unsettled: Vec<BTreeMap<CString, RestoredAttributes>>,
    /// Files that may get more names. Each is kept under a name of its own in the root, which no sandbox
    /// shows, since the path to it may be too long for the kernel.
    groups: BTreeSet<u64>,
    source: &'calls mut dyn ExtentSource,
    owner: Owner,
    buffer: Vec<u8>,
}

impl Restoring<'_, '_> {
    fn add(&mut self, entry: &SavedEntry) -> Result<(), SavedTreeError> {
        let split = entry.path.iter().rposition(|byte| *byte == b'/');
        let parent = split.and_then(|at| entry.path.get(..at)).unwrap_or_default();
        let name = entry.path.get(split.map_or(0, |at| at + 1)..).unwrap_or_default();
        if matches!(name, b"" | b"." | b"..") {
            return Err(damaged("name").into());
        }
        let name = CString::new(name).map_err(|_| damaged("name"))?;
        let at = |fault: WorkspaceFault| fault.at(OsStr::from_bytes(&entry.path));
        self.go_to(parent).map_err(at)?;
        let attributes = RestoredAttributes {
            owner: match entry.owner {
                EntryOwner::Tenant => self.owner,
                EntryOwner::Root => Owner { uid: 0, gid: 0 },
            },
            mode: Mode::from_bits_truncate(entry.mode.into()),
            modified: entry.modified,
        };
        let directory = self.directories.current();
        match &entry.kind {
            EntryKind::Directory => {
                mkdirat(directory, &*name, Mode::S_IRWXU).during("mkdir").map_err(at)?;
                if let Some(unsettled) = self.unsettled.last_mut() {
                    unsettled.insert(name, attributes);
                }
                Ok(())
            }
            EntryKind::File(file) => self.file(file, &name, attributes, &entry.path),
            EntryKind::HardLink { group } => {
                let kept = kept_name(*group);
                let linked = linkat(self.root, kept.as_str(), directory, &*name, AtFlags::empty());
                Ok(linked.during("link").map_err(at)?)
            }
            EntryKind::SymbolicLink { target } => {
                let made = symlinkat(OsStr::from_bytes(target), directory, &*name);
                made.during("symlink").map_err(at)?;
                Ok(settle(directory, &name, attributes, false).map_err(at)?)
            }
            EntryKind::Fifo => {
                let made = mknodat(directory, &*name, SFlag::S_IFIFO, Mode::S_IRUSR, 0);
                made.during("mkfifo").map_err(at)?;
                Ok(settle(directory, &name, attributes, true).map_err(at)?)
            }
        }
    }

    /// Goes to the directory `parent`, which was made before.
    fn go_to(&mut self, parent: &[u8]) -> Result<(), WorkspaceFault> {
        while !is_within(parent, self.path.bytes()) {
            self.leave()?;
        }
        loop {
            let here = self.path.bytes().len();
            let rest = parent.get(here..).unwrap_or_default();
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            let Some(next) =
                rest.split(|byte| *byte == b'/').next().filter(|next| !next.is_empty())
            else {
                return Ok(());
            };
            let name = CString::new(next).map_err(|_| Errno::EINVAL).during("enter")?;
            let known = self.unsettled.last_mut().and_then(|unsettled| unsettled.remove(&name));
            let attributes = known.ok_or(Errno::ENOENT).during("enter")?;
            let opened = open_beneath::open_directory(self.directories.current(), &*name);
            let opened = opened.during("open")?;
            let stat = fstat(&opened).during("stat")?;
            self.directories.descend(opened, &stat);
            self.path.enter(&name);
            self.entered.push(attributes);
            self.unsettled.push(BTreeMap::new());
        }
    }

    /// Settles the current directory and those in it, and returns to its parent.
    fn leave(&mut self) -> Result<(), WorkspaceFault> {
        self.settle_children()?;
        self.unsettled.pop();
        let name = CString::new(self.path.name()).map_err(|_| Errno::EINVAL).during("leave")?;
        let attributes = self.entered.pop().ok_or(Errno::ENOENT).during("leave")?;
        self.directories.ascend().during("return to")?;
        self.path.leave();
        settle(self.directories.current(), &name, attributes, true)
    }

    fn settle_children(&self) -> Result<(), WorkspaceFault> {
        let unsettled = self.unsettled.last().into_iter().flatten();
        for (name, attributes) in unsettled {
            settle(self.directories.current(), name, *attributes, true)?;
        }
        Ok(())
    }

    fn file(
        &mut self,
        file: &SavedFile,
        name: &CStr,
        RestoredAttributes { owner, mode, modified }: RestoredAttributes,
        path: &[u8],
    ) -> Result<(), SavedTreeError> {
        let at = |fault: WorkspaceFault| fault.at(OsStr::from_bytes(path));
        let directory = self.directories.current();
        let made = open_beneath::create_file(directory, name).during("create").map_err(at)?;
        let made = File::from(made);
        for extent in &file.extents {
            let buffer = self.buffer.get_mut(..extent.bytes as usize);
            let buffer = buffer.ok_or_else(|| damaged("extent"))?;
            self.source.read(&extent.digest, buffer)?;
            made.write_all_at(buffer, extent.offset).during("write").map_err(at)?;
        }
        let bytes = i64::try_from(file.bytes).map_err(|_| damaged("size"))?;
        ftruncate(&made, bytes).during("truncate").map_err(at)?;
        let (uid, gid) = ids(owner);
        fchown(&made, uid, gid).during("chown").map_err(at)?;
        // A change of owner clears bits of the mode.
        fchmod(&made, mode).during("chmod").map_err(at)?;
        if file.group > 0 {
            let kept = kept_name(file.group);
            let linked = linkat(directory, name, self.root, kept.as_str(), AtFlags::empty());
            linked.during("link").map_err(at)?;
            self.groups.insert(file.group);
        }
        let time = time_of(modified);
        Ok(futimens(&made, &time, &time).during("utimens").map_err(at)?)
    }

    fn finish(mut self) -> Result<(), SavedTreeError> {
        let at_root = |fault: WorkspaceFault| fault.at(".");
        while self.directories.depth() > 0 {
            self.leave().map_err(at_root)?;
        }
        self.settle_children().map_err(at_root)?;
        for group in &self.groups {
            let removed =
                unlinkat(self.root, kept_name(*group).as_str(), UnlinkatFlags::NoRemoveDir);
            removed.during("unlink").map_err(at_root)?;
        }
        Ok(())
    }
}

/// The name in the root under which the file of a group is kept.
fn kept_name(group: u64) -> String {
    format!(".restored-{group}")
}

/// Whether `path` is `directory` or lies in it.
fn is_within(path: &[u8], directory: &[u8]) -> bool {
    match path.strip_prefix(directory) {
        Some(rest) => directory.is_empty() || matches!(rest, [] | [b'/', ..]),
        None => false,
    }
}

fn ids(owner: Owner) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn time_of(time: EntryTime) -> TimeSpec {
    TimeSpec::new(time.seconds, time.nanoseconds.into())
}

/// Gives the entry `name` of `parent` owner, mode and time. A link has no mode.
fn settle(
    parent: BorrowedFd<'_>,
    name: &CStr,
    RestoredAttributes { owner, mode, modified }: RestoredAttributes,
    has_mode: bool,
) -> Result<(), WorkspaceFault> {
    let (uid, gid) = ids(owner);
    fchownat(parent, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).during("chown")?;
    if has_mode {
        fchmodat(parent, name, mode, FchmodatFlags::FollowSymlink).during("chmod")?;
    }
    let time = time_of(modified);
    utimensat(parent, name, &time, &time, UtimensatFlags::NoFollowSymlink).during("utimens")
}
