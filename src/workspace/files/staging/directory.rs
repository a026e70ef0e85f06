//! Stages a directory: of the host, of a stored skill, or one that the client sends.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

use super::mount::{kept_tree, mount_alone};
use super::records::metadata_with;
use super::request::StageDirectoryRequest;
use super::source::{host_path, open_host};
use super::stores::EngineStores;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::archive::spool_archive;
use crate::workspace::files::error::{engine_error, locate, tree_error};
use crate::workspace::helpers::constants::{DIR_SKILLS, META_FILE_NAME};
use crate::workspace::helpers::{METADATA_BYTES_MAX, SkillMeta};
use crate::workspace::service::live::WorkspaceUse;
use crate::workspace::service::span::Span;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::TreeLimits;
use cofferdam_tree::files::{
    ArchiveLimits, DirectoryDigest, DirectorySource, FileLocation, HostEntry, Spool, StageBatch,
    StagedAccess, WorkspaceRoot,
};

/// A staged directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StagedDirectoryView {
    /// Its place.
    pub to: String,
    /// The digest of its files.
    pub digest: String,
    /// The number of its files.
    pub files: u64,
    /// Whether it is a mount of one copy for all workspaces.
    pub mount_used: bool,
}

/// Where the files of a staged directory come from.
#[derive(Debug)]
enum StagedSource {
    Host { path: String, directory: OwnedFd },
    Skill(Spool),
    Sent(Spool),
}

/// Puts a directory of the host or a stored skill in the place of what is at `to`.
///
/// # Errors
/// There is no such directory or skill, or it cannot be copied. Nothing has changed then.
pub fn stage_directory(
    used: &mut WorkspaceUse,
    stores: &EngineStores,
    request: &StageDirectoryRequest,
) -> Result<StagedDirectoryView, EngineError> {
    let source = match (&request.src, &request.digest) {
        (Some(src), None) => {
            let path = host_path(src).map_err(|error| error.with("path", "src"))?;
            let entry = open_host(stores, &path).map_err(|error| error.with("path", "src"))?;
            let HostEntry::Directory(directory) = entry else {
                let words = "src: want a directory";
                return Err(EngineError::new(EngineCode::FileNotRegular, words).with("path", "src"));
            };
            StagedSource::Host { path, directory }
        }
        (None, Some(digest)) => StagedSource::Skill(stores.skill(digest)?),
        (None, None) => return Err(EngineError::invalid("src", "want src, digest or an archive")),
        (Some(_), Some(_)) => return Err(EngineError::invalid("digest", "there is a src")),
    };
    stage(used, request, &source)
}

/// As [`stage_directory`], of the archive that `source` gives. It is received and judged as a whole first.
///
/// # Errors
/// The archive is not safe or too long, or it cannot be unpacked. Nothing has changed then.
pub fn stage_archive(
    used: &mut WorkspaceUse,
    request: &StageDirectoryRequest,
    source: &mut dyn Read,
) -> Result<StagedDirectoryView, EngineError> {
    // Judged before the archive is received, which takes time.
    used.workspace().with_root(|root| place(root, request))?;
    let (spool, _) = spool_archive(used, source)?;
    stage(used, request, &StagedSource::Sent(spool))
}

fn stage(
    used: &mut WorkspaceUse,
    request: &StageDirectoryRequest,
    source: &StagedSource,
) -> Result<StagedDirectoryView, EngineError> {
    let span = Span::begin("workspace.stage.dir");
    let staged = match mount(used, request, source) {
        Some(mounted) => mounted,
        None => copy(used, request, source)?,
    };
    let host_path = match source {
        StagedSource::Host { path, .. } => path.as_str(),
        StagedSource::Skill(_) | StagedSource::Sent(_) => "",
    };
    span.end_stage_directory(&used.workspace().id, host_path, &staged.to, staged.mount_used);
    Ok(staged)
}

impl StagedSource {
    fn files(&self, archive: ArchiveLimits) -> DirectorySource<'_> {
        match self {
            Self::Host { directory, .. } => DirectorySource::Directory(directory.as_fd()),
            Self::Skill(spool) | Self::Sent(spool) => DirectorySource::Archive(spool, archive),
        }
    }
}

/// Mounts the files, if the request permits it. None if that is not possible: then they are copied, and an error is
/// that of the copy.
fn mount(
    used: &mut WorkspaceUse,
    request: &StageDirectoryRequest,
    source: &StagedSource,
) -> Option<StagedDirectoryView> {
    if request.read_only != Some(true) || request.allow_mount != Some(true) {
        return None;
    }
    let skill = match source {
        StagedSource::Skill(_) => request.digest.as_deref(),
        StagedSource::Host { .. } | StagedSource::Sent(_) => None,
    };
    let live = used.workspace();
    live.with_root(|root| place(root, request)).ok()?;
    let kept = kept_tree(live, source.files(ArchiveLimits::default()), skill)?;
    // The records.
    used.reserve(2 * METADATA_BYTES_MAX).ok()?;
    let live = used.workspace();
    let digest = kept.digest.clone();
    let locate = |root: &WorkspaceRoot<'_>| place(root, request);
    let to = mount_alone(live, &kept, locate, |root, batch, to| {
        let _turn = live.staged.metadata_turn();
        add_skill_record(root, batch, to, (&digest.digest, true))
    })?;
    let DirectoryDigest { digest, files, .. } = digest;
    Some(StagedDirectoryView { to: shown(&to), digest, files, mount_used: true })
}

fn copy(
    used: &mut WorkspaceUse,
    request: &StageDirectoryRequest,
    source: &StagedSource,
) -> Result<StagedDirectoryView, EngineError> {
    used.reserve(u64::MAX)?;
    let live = used.workspace();
    let usage = live.usage()?;
    let (entries_max, bytes_max) = (usage.limit_inodes, usage.limit_bytes);
    let limits = TreeLimits { entries_max, bytes_max, ..TreeLimits::default() };
    let archive = ArchiveLimits { entries_max, bytes_max, ..ArchiveLimits::default() };
    let access = match request.read_only {
        Some(true) => StagedAccess::ReadOnly,
        _ => StagedAccess::Writable,
    };
    live.with_root(|root| {
        let to = place(root, request)?;
        let mut batch = StageBatch::new(root);
        let from = source.files(archive);
        let staged = batch.directory(&to, from, access, &limits).map_err(tree_error)?;
        check_stored(source, request, &staged)?;
        let _turn = live.staged.metadata_turn();
        add_skill_record(root, &mut batch, &to, (&staged.digest, false))?;
        batch.install().map_err(engine_error)?;
        let DirectoryDigest { digest, files, .. } = staged;
        Ok(StagedDirectoryView { to: shown(&to), digest, files, mount_used: false })
    })
}

/// Records the skill that is staged to `to`, with its digest and whether it is mounted, if `to` is the place of one.
fn add_skill_record(
    root: &WorkspaceRoot<'_>,
    batch: &mut StageBatch<'_>,
    to: &FileLocation,
    (digest, mounted): (&str, bool),
) -> Result<(), EngineError> {
    let Some(name) = skill_name(to) else { return Ok(()) };
    let now = SystemTime::now();
    let skill = SkillMeta {
        name: name.clone(),
        rel_path: shown(to),
        digest: digest.to_owned(),
        mounted,
        staged_at: rfc3339(now),
    };
    let metadata = metadata_with(root, now, |metadata| {
        metadata.skills.insert(name, skill);
    })?;
    match metadata {
        Some(contents) => batch.metadata(&contents).map_err(engine_error),
        None => Ok(()),
    }
}

fn shown(to: &FileLocation) -> String {
    to.shown().display().to_string()
}

/// The place of a directory: neither the workspace itself nor its records.
fn place(
    root: &WorkspaceRoot<'_>,
    request: &StageDirectoryRequest,
) -> Result<FileLocation, EngineError> {
    let to = locate(root, "to", &request.to)?;
    let metadata = root.locate(META_FILE_NAME).map_err(engine_error)?;
    if to.name().is_none() || metadata.lies_in(&to) || to.lies_in(&metadata) {
        let words = "want a place that is not the workspace itself or its records";
        return Err(EngineError::invalid("to", words));
    }
    Ok(to)
}

/// Refuses a stored skill whose files are no longer those of its digest.
fn check_stored(
    source: &StagedSource,
    request: &StageDirectoryRequest,
    staged: &DirectoryDigest,
) -> Result<(), EngineError> {
    let is_stored = matches!(source, StagedSource::Skill(_));
    if is_stored && request.digest.as_deref() != Some(staged.digest.as_str()) {
        log::error!(digest = staged.digest.as_str(); "a stored skill has changed on the disk");
        return Err(EngineError::new(EngineCode::IoFailed, "the stored skill is damaged"));
    }
    Ok(())
}

/// The name of the skill that a directory at `to` is.
fn skill_name(to: &FileLocation) -> Option<String> {
    let relative = to.shown();
    let name = to.name()?.to_str()?;
    (relative == Path::new(DIR_SKILLS).join(name)).then(|| name.to_owned())
}
