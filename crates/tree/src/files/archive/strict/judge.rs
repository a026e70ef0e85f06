//! Judges all of a task's archive before anything of it is written.

use std::cell::Cell;
use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::error::{Refused, StrictError, UnsafeReason};
use super::format::StrictArchive;
use super::limits::{StrictLimits, StrictRule};
use crate::copy::link_text::stays_inside;
use crate::files::archive::claims::{ARCHIVED_BYTES_MAX, Claim, PathClaims};
use crate::files::archive::judge::add_part;
use crate::files::archive::reader::{ArchivedEntry, ArchivedKind, EntryStream};
use crate::files::error::FilesError;
use crate::files::location::{NAME_BYTES_MAX, PATH_BYTES_MAX, parts};
use crate::walk::stop_check::StopCheck;

/// Directories that entries imply may be so many times the entries.
const IMPLIED: u64 = 2;

/// What an archive of a task contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StrictContents {
    /// Entries, those that are skipped too.
    pub entries: u64,
    /// The size of the files together, bytes.
    pub bytes: u64,
}

/// Whether an entry is one that macOS adds.
pub(super) fn is_skipped(path: &Path) -> bool {
    let is_forked = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"._"));
    is_forked || path.iter().any(|part| part == "__MACOSX")
}

/// The relative path of an entry.
pub(super) fn strict_path(path: &[u8], depth_max: usize) -> Result<PathBuf, UnsafeReason> {
    if path.starts_with(b"/") {
        return Err(UnsafeReason::Absolute);
    }
    if parts(path).any(|part| part == b"..") {
        return Err(UnsafeReason::Traversal);
    }
    let fits = path.len() <= PATH_BYTES_MAX && parts(path).all(|part| part.len() <= NAME_BYTES_MAX);
    let is_text = std::str::from_utf8(path).is_ok() && !path.contains(&0);
    if path.is_empty() || !fits || !is_text || parts(path).count() > depth_max {
        return Err(UnsafeReason::Name);
    }
    Ok(parts(path).map(OsStr::from_bytes).collect())
}

/// Calls `visit` with each entry that is not skipped, its path, and the reader of its contents.
pub(super) fn each_entry(
    archive: &StrictArchive,
    limits: StrictLimits,
    stop: StopCheck<'_>,
    mut visit: impl FnMut(&ArchivedEntry, &Path, &mut dyn EntryStream) -> Result<(), StrictError>,
) -> Result<u64, StrictError> {
    let refused: Refused = Rc::new(Cell::new(None));
    let mut last = Vec::new();
    let mut entries = 0;
    let of_reader = |error, last: &[u8]| match refused.get() {
        Some(reason) => StrictError::refuse(reason, last),
        None => StrictError::of_reader(error, last),
    };
    let opened = archive.entries(limits, &refused, stop);
    let mut reader = opened.map_err(|error| of_reader(error, &last))?;
    while let Some(entry) = reader.next_entry().map_err(|error| of_reader(error, &last))? {
        if stop.is_set() {
            return Err(StrictError::Host(FilesError::Stopped));
        }
        let refuse = |reason| StrictError::refuse(reason, &entry.path);
        entries += 1;
        if entries > limits.entries_max {
            return Err(refuse(UnsafeReason::Entries));
        }
        let path = strict_path(&entry.path, limits.depth_max).map_err(refuse)?;
        if !is_skipped(&path) {
            visit(&entry, &path, &mut *reader).map_err(|error| match (error, refused.get()) {
                (StrictError::Host(_), Some(reason)) => refuse(reason),
                (error, _) => error,
            })?;
        }
        last = entry.path;
    }
    Ok(entries)
}

/// Judges `archive`.
pub(super) fn judge_strict(
    archive: &StrictArchive,
    rule: StrictRule<'_>,
    limits: StrictLimits,
    stop: StopCheck<'_>,
) -> Result<StrictContents, StrictError> {
    let mut judge = StrictJudge {
        archive,
        rule,
        limits,
        claims: PathClaims::new(limits.entries_max.saturating_mul(IMPLIED)),
        hashes: RandomState::new(),
        bytes: 0,
        has_links: false,
        descriptions: Descriptions::default(),
    };
    let entries = each_entry(archive, limits, stop, |entry, path, contents| {
        judge.entry(entry, path, contents)
    })?;
    let contents = StrictContents { entries, bytes: judge.bytes };
    if judge.has_links {
        let below = judge.descriptions.links_below(rule);
        each_entry(archive, limits, stop, |entry, path, _| {
            check_kept(entry, path, below.as_deref())
        })?;
    }
    Ok(contents)
}

/// Checks that a link lies in the directory `below` and leads to a place in it.
fn check_kept(entry: &ArchivedEntry, path: &Path, below: Option<&Path>) -> Result<(), StrictError> {
    let inside = below.and_then(|below| path.strip_prefix(below).ok());
    let depth = inside.map(|inside| inside.iter().count().saturating_sub(1));
    let is_kept = match &entry.kind {
        ArchivedKind::Symlink(text) => depth.is_some_and(|depth| stays_inside(text, depth)),
        ArchivedKind::HardLink(target) => {
            let target: PathBuf = parts(target).map(OsStr::from_bytes).collect();
            depth.is_some() && below.is_some_and(|below| target.starts_with(below))
        }
        _ => true,
    };
    match is_kept {
        true => Ok(()),
        false => Err(StrictError::refuse(UnsafeReason::Link, &entry.path)),
    }
}

struct StrictJudge<'call> {
    archive: &'call StrictArchive,
    rule: StrictRule<'call>,
    limits: StrictLimits,
    claims: PathClaims,
    hashes: RandomState,
    bytes: u64,
    has_links: bool,
    descriptions: Descriptions,
}

impl StrictJudge<'_> {
    fn entry(
        &mut self,
        entry: &ArchivedEntry,
        path: &Path,
        contents: &mut dyn EntryStream,
    ) -> Result<(), StrictError> {
        let refuse = |reason| StrictError::refuse(reason, &entry.path);
        let claim = match &entry.kind {
            ArchivedKind::Directory => Claim::Directory,
            ArchivedKind::File => Claim::File { bytes: entry.size.min(ARCHIVED_BYTES_MAX) },
            ArchivedKind::Special(_) => return Err(refuse(UnsafeReason::Device)),
            ArchivedKind::Symlink(text) => {
                let is_text = !text.is_empty() && !text.contains(&0);
                let depth = path.iter().count().saturating_sub(1);
                if !is_text || text.len() > PATH_BYTES_MAX || !stays_inside(text, depth) {
                    return Err(refuse(UnsafeReason::Link));
                }
                self.has_links = true;
                Claim::Link
            }
            ArchivedKind::HardLink(target) => {
                self.has_links = true;
                self.linked_file(target).ok_or_else(|| refuse(UnsafeReason::Link))?
            }
        };
        if path.as_os_str().is_empty() {
            // The top of the archive.
            let is_fine = claim == Claim::Directory;
            return if is_fine { Ok(()) } else { Err(refuse(UnsafeReason::Name)) };
        }
        self.claim(path, claim).map_err(refuse)?;
        self.descriptions.see(self.rule, path, claim, contents);
        Ok(())
    }

    /// The file that a hard link names, which must come before it.
    fn linked_file(&self, target: &[u8]) -> Option<Claim> {
        let path = strict_path(target, self.limits.depth_max).ok()?;
        let mut hasher = self.hashes.build_hasher();
        path.iter().for_each(|part| add_part(&mut hasher, part));
        self.claims.get(hasher.finish()).filter(|claim| matches!(claim, Claim::File { .. }))
    }

    /// Takes the path and the directories above it, and counts the bytes.
    fn claim(&mut self, path: &Path, claim: Claim) -> Result<(), UnsafeReason> {
        let mut hasher = self.hashes.build_hasher();
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            add_part(&mut hasher, name);
            let is_last = names.peek().is_none();
            let wanted = if is_last { claim } else { Claim::Directory };
            let before = self.claims.insert(hasher.finish(), wanted);
            match (before, wanted) {
                (None, _) => {
                    let claims_max = self.limits.entries_max.saturating_mul(IMPLIED);
                    if self.claims.len() as u64 > claims_max {
                        return Err(UnsafeReason::Entries);
                    }
                }
                (Some(Claim::Directory), Claim::Directory) => {}
                (Some(Claim::Link), _) if !is_last => return Err(UnsafeReason::Link),
                _ => return Err(UnsafeReason::Duplicate),
            }
        }
        let Claim::File { bytes } = claim else { return Ok(()) };
        self.bytes = self.bytes.saturating_add(bytes);
        if self.archive.ratio().is_exceeded_by(self.bytes) {
            return Err(UnsafeReason::Ratio);
        }
        if self.bytes > self.limits.bytes_max { Err(UnsafeReason::Size) } else { Ok(()) }
    }
}

/// The descriptions of the task that were found, and the directories at the top.
#[derive(Debug, Default)]
struct Descriptions {
    at_top: Option<Vec<u8>>,
    in_directory: Option<Vec<u8>>,
    directory: Option<PathBuf>,
    has_several: bool,
}

impl Descriptions {
    fn see(
        &mut self,
        rule: StrictRule<'_>,
        path: &Path,
        claim: Claim,
        contents: &mut dyn EntryStream,
    ) {
        let depth = path.iter().count();
        let top: PathBuf = path.iter().take(1).collect();
        if depth > 1 || claim == Claim::Directory {
            match &self.directory {
                Some(first) => self.has_several |= *first != top,
                None => self.directory = Some(top),
            }
        }
        let is_description = path.file_name().is_some_and(|name| name == rule.manifest);
        let place = match depth {
            1 => &mut self.at_top,
            2 if !self.has_several => &mut self.in_directory,
            _ => return,
        };
        if let (true, Claim::File { bytes }) = (is_description, claim)
            && bytes <= rule.manifest_bytes_max
        {
            let mut text = Vec::new();
            // What cannot be read is found again, and reported, where the rest is skipped.
            if contents.take(rule.manifest_bytes_max).read_to_end(&mut text).is_ok() {
                *place = Some(text);
            }
        }
    }

    /// The directory of the archive below which links are kept.
    fn links_below(&self, rule: StrictRule<'_>) -> Option<PathBuf> {
        if let Some(text) = &self.at_top {
            return (rule.links_below)(text);
        }
        let (text, directory) = (self.in_directory.as_ref()?, self.directory.as_ref()?);
        let below = (rule.links_below)(text)?;
        (!self.has_several).then(|| directory.join(below))
    }
}
