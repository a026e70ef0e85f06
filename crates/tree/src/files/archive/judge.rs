//! Judges all of an archive before anything of it is written: by itself, and against the place where
//! it is unpacked.

use std::ffi::OsStr;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::SFlag;

use super::claims::{ARCHIVED_BYTES_MAX, Claim, PathClaims};
use super::reader::{ArchiveLimits, ArchivedEntry, ArchivedKind, TarReader};
use super::spool::Spool;
use crate::copy::link_text::stays_inside;
use crate::files::error::FilesError;
use crate::files::location::{FileLocation, NAME_BYTES_MAX, PATH_BYTES_MAX, parts};
use crate::files::resolve::{MissingParents, WorkspaceRoot};
use crate::status;
use crate::walk::budget::TreeLimit;

/// How far links of an archive may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkReach {
    /// Anywhere in the workspace and `/tmp`.
    Workspace,
    /// Only to places in the archive's own tree.
    Tree,
}

/// What an archive contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveContents {
    /// Regular files; each hard link counts as a file.
    pub files: u64,
    /// The size of the files together, bytes.
    pub bytes: u64,
}

/// The relative path of an entry: its parts.
pub(super) fn path_in_archive(path: &[u8], depth_max: usize) -> Result<PathBuf, &'static str> {
    if path.first() == Some(&b'/') {
        return Err("its path is absolute");
    }
    if path.is_empty() {
        return Err("it has no path");
    }
    if path.contains(&0) {
        return Err("a name contains NUL");
    }
    let mut plain = PathBuf::new();
    let mut depth = 0;
    for part in parts(path) {
        if part == b".." {
            return Err("its path contains `..`");
        }
        if part.len() > NAME_BYTES_MAX {
            return Err("its name is too long");
        }
        plain.push(OsStr::from_bytes(part));
        depth += 1;
    }
    if plain.as_os_str().len() > PATH_BYTES_MAX {
        return Err("its path is too long");
    }
    if depth > depth_max {
        return Err("it lies too deep");
    }
    Ok(plain)
}

/// Judges the archive `spool`, which is to be unpacked into the directory `to`.
pub(super) fn judge(
    root: &WorkspaceRoot<'_>,
    to: &FileLocation,
    spool: &Spool,
    reach: LinkReach,
    limits: ArchiveLimits,
) -> Result<ArchiveContents, FilesError> {
    let mut reader = TarReader::new(spool, limits);
    let mut judge = Judge {
        root,
        to,
        reach,
        limits,
        claims: PathClaims::new(limits.entries_max),
        hashes: RandomState::new(),
        contents: ArchiveContents::default(),
    };
    while let Some(entry) = reader.advance()? {
        judge.entry(&entry)?;
    }
    Ok(judge.contents)
}

struct Judge<'call> {
    root: &'call WorkspaceRoot<'call>,
    to: &'call FileLocation,
    reach: LinkReach,
    limits: ArchiveLimits,
    /// By the hash of the path: paths would take megabytes.
    claims: PathClaims,
    hashes: RandomState,
    contents: ArchiveContents,
}

impl Judge<'_> {
    fn entry(&mut self, entry: &ArchivedEntry) -> Result<(), FilesError> {
        let refuse = |reason| FilesError::archive(reason, entry.shown());
        let path = path_in_archive(&entry.path, self.limits.depth_max).map_err(refuse)?;
        let location = self.to.join(&path);
        if location.path_in_root().as_os_str().len() > PATH_BYTES_MAX {
            return Err(refuse("its path is too long"));
        }
        let claim = match &entry.kind {
            ArchivedKind::Directory => Claim::Directory,
            ArchivedKind::File => Claim::File { bytes: entry.size },
            ArchivedKind::Symlink(text) => {
                self.check_link(&location, &path, text).map_err(refuse)?;
                Claim::Link
            }
            ArchivedKind::HardLink(target) => self.linked_file(target).map_err(refuse)?,
            ArchivedKind::Special(reason) => return Err(refuse(reason)),
        };
        if path.as_os_str().is_empty() {
            // The top of the archive is the directory into which it is unpacked.
            return if claim == Claim::Directory { Ok(()) } else { Err(refuse("it has no name")) };
        }
        self.claim(&path, claim).map_err(|refusal| match refusal {
            Refusal::Unsafe(reason) => refuse(reason),
            Refusal::Limit(limit) => FilesError::too_large(limit, entry.shown()),
        })?;
        self.check_place(&location, claim)
    }

    fn check_link(
        &self,
        location: &FileLocation,
        path: &Path,
        text: &[u8],
    ) -> Result<(), &'static str> {
        const LEAVES: &str = "it is a link that leads out";
        if text.is_empty() || text.contains(&0) || text.len() > PATH_BYTES_MAX {
            return Err("its link is malformed");
        }
        let depth = path.iter().count().saturating_sub(1);
        if stays_inside(text, depth) {
            return Ok(());
        }
        // After a name, `..` leads where other links say.
        let mut names = parts(text).skip_while(|part| *part == b"..");
        if self.reach == LinkReach::Tree || names.any(|part| part == b"..") {
            return Err(LEAVES);
        }
        let above = location.parent().ok_or(LEAVES)?;
        let mut reached = match text.first() {
            Some(b'/') => Vec::new(),
            _ => self.root.rule.parts_inside(&above),
        };
        for part in parts(text) {
            if part == b".." {
                reached.pop();
            } else {
                reached.push(part.to_vec());
            }
        }
        self.root.rule.area_of(&reached).map(|_| ()).ok_or(LEAVES)
    }

    /// The file that a hard link names, which must come before it.
    fn linked_file(&self, target: &[u8]) -> Result<Claim, &'static str> {
        let path = path_in_archive(target, self.limits.depth_max)?;
        let mut hasher = self.hashes.build_hasher();
        path.iter().for_each(|part| add_part(&mut hasher, part));
        match self.claims.get(hasher.finish()) {
            Some(file @ Claim::File { .. }) => Ok(file),
            _ => Err("it is a hard link to no file of the archive"),
        }
    }

    /// Takes the path and the directories above it.
    fn claim(&mut self, path: &Path, claim: Claim) -> Result<(), Refusal> {
        if let Claim::File { bytes } = claim {
            let bytes_max = self.limits.bytes_max.min(ARCHIVED_BYTES_MAX);
            if bytes > bytes_max {
                return Err(Refusal::Limit(TreeLimit::Bytes { max: bytes_max }));
            }
        }
        let mut hasher = self.hashes.build_hasher();
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            add_part(&mut hasher, name);
            let is_last = names.peek().is_none();
            let wanted = if is_last { claim } else { Claim::Directory };
            let before = self.claims.insert(hasher.finish(), wanted);
            match (before, wanted) {
                (None, _) if self.claims.len() as u64 > self.limits.entries_max => {
                    return Err(Refusal::Limit(TreeLimit::Entries {
                        max: self.limits.entries_max,
                    }));
                }
                (None, _)
                | (Some(Claim::Directory), Claim::Directory)
                | (Some(Claim::File { .. }), Claim::File { .. }) => {}
                _ if !is_last => {
                    return Err(Refusal::Unsafe("it lies below a file or a link of the archive"));
                }
                _ => return Err(Refusal::Unsafe("another entry of the archive has its path")),
            }
        }
        let Claim::File { bytes } = claim else { return Ok(()) };
        self.contents.files += 1;
        self.contents.bytes = self.contents.bytes.saturating_add(bytes);
        match self.contents.bytes > self.limits.bytes_max {
            true => Err(Refusal::Limit(TreeLimit::Bytes { max: self.limits.bytes_max })),
            false => Ok(()),
        }
    }

    /// Checks that the entry can be written to its place. It is checked again when it is.
    fn check_place(&self, location: &FileLocation, claim: Claim) -> Result<(), FilesError> {
        let parent = match self.root.parent(location, MissingParents::Refuse) {
            Ok(parent) => parent,
            Err(FilesError::NotFound { .. }) => return self.root.check_missing(location),
            Err(error) => return Err(error),
        };
        match (parent.entry()?.as_ref().map(status::file_type), claim) {
            (Some(SFlag::S_IFDIR), Claim::Directory) => Ok(()),
            (Some(SFlag::S_IFLNK), Claim::Directory) => {
                Err(FilesError::ThroughLink { path: parent.path })
            }
            (None, _) => parent.check_writable(),
            (Some(SFlag::S_IFREG | SFlag::S_IFLNK), Claim::File { .. } | Claim::Link) => {
                parent.check_writable()
            }
            _ => Err(FilesError::not_regular(&parent.path)),
        }
    }
}

enum Refusal {
    Unsafe(&'static str),
    Limit(TreeLimit),
}

pub(super) fn add_part(hasher: &mut DefaultHasher, part: &OsStr) {
    hasher.write(part.as_bytes());
    hasher.write_u8(b'/');
}
