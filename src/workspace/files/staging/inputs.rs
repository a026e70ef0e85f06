//! Stages a list of inputs, all or none.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

use serde::Serialize;

use super::records::metadata_with;
use super::request::{InputSpec, StageInputsRequest};
use super::scope::artifact_scope;
use super::source::{NamedInput, missing, open_host, wants_link};
use super::stores::EngineStores;
use crate::workspace::artifacts::{ArtifactKey, LazyArtifacts};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::error::{engine_error, locate, tree_error};
use crate::workspace::helpers::InputRecord;
use crate::workspace::helpers::constants::META_FILE_NAME;
use crate::workspace::service::live::{LiveWorkspace, WorkspaceUse};
use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::TreeLimits;
use cofferdam_tree::files::{
    DirectorySource, FileLocation, FilesError, HostEntry, StageBatch, StagedAccess, WorkspaceRoot,
};

/// The most inputs of one call. Each holds a file or directory open until all have their places.
const INPUTS_MAX: usize = 256;
/// The permissions of a file that comes from an artifact.
const ARTIFACT_MODE: u32 = 0o644;
/// What a file takes besides its contents, and the records.
const FILE_BYTES: u64 = 4096;
const METADATA_BYTES: u64 = 64 << 10;

/// What was staged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StagedInputsView {
    /// In the order of the request.
    pub inputs: Vec<InputRecord>,
}

/// An input whose source is found.
#[derive(Debug)]
struct FoundInput {
    content: FoundContent,
    is_link: bool,
    record: InputRecord,
    /// The artifact that it is.
    artifact: Option<ArtifactKey>,
}

#[derive(Debug)]
enum FoundContent {
    File {
        file: File,
        mode: u32,
        bytes: u64,
    },
    Directory(OwnedFd),
    /// In the workspace.
    Inside(NamedInput),
}

/// Stages all inputs, or none. Their sources are read before anything has its place.
///
/// # Errors
/// The first input that cannot be staged. Nothing has changed then.
pub fn stage_inputs(
    used: &mut WorkspaceUse,
    stores: &EngineStores,
    request: &StageInputsRequest,
) -> Result<StagedInputsView, EngineError> {
    if request.inputs.len() > INPUTS_MAX {
        let words = format!("more than {INPUTS_MAX} inputs");
        return Err(EngineError::invalid("inputs", words).with("max", INPUTS_MAX));
    }
    let now = SystemTime::now();
    let live = used.workspace();
    let located = live.with_root(|root| places(root, &request.inputs))?;
    let found = located.iter().enumerate().map(|(index, (spec, source, to))| {
        let mut found = find(live, stores, source, to, spec).map_err(at(index, "from"))?;
        found.record.from.clone_from(&spec.from);
        found.record.ts = rfc3339(now);
        Ok(found)
    });
    let mut found = found.collect::<Result<Vec<_>, EngineError>>()?;
    let bytes = found.iter().map(|input| match &input.content {
        FoundContent::File { bytes, .. } => bytes.saturating_add(FILE_BYTES),
        FoundContent::Inside(_) if input.is_link => FILE_BYTES,
        FoundContent::Directory(_) | FoundContent::Inside(_) => u64::MAX,
    });
    used.reserve(bytes.fold(METADATA_BYTES, u64::saturating_add))?;
    let live = used.workspace();
    let usage = live.usage()?;
    let limits = TreeLimits {
        entries_max: usage.limit_inodes,
        bytes_max: usage.limit_bytes,
        ..TreeLimits::default()
    };
    live.with_root(|root| {
        let mut batch = StageBatch::new(root);
        for (index, (input, (_, _, to))) in found.iter_mut().zip(&located).enumerate() {
            add(&mut batch, root, input, to, &limits).map_err(at(index, "from"))?;
        }
        let _turn = live.staged.metadata_turn();
        let records = found.iter().map(|input| input.record.clone());
        let metadata = metadata_with(root, now, |metadata| metadata.inputs.extend(records))?;
        if let Some(contents) = metadata {
            batch.metadata(&contents).map_err(engine_error)?;
        }
        batch.install().map_err(engine_error)
    })?;
    for input in &found {
        if let (Some(key), Some(version)) = (&input.artifact, input.record.version) {
            live.staged.note(key, &input.record.to, version);
        }
    }
    Ok(StagedInputsView { inputs: found.into_iter().map(|input| input.record).collect() })
}

type Located<'a> = (&'a InputSpec, NamedInput, FileLocation);

/// What the inputs name, and their places. None lies in another.
fn places<'a>(
    root: &WorkspaceRoot<'_>,
    specs: &'a [InputSpec],
) -> Result<Vec<Located<'a>>, EngineError> {
    let metadata = root.locate(META_FILE_NAME).map_err(engine_error)?;
    let mut located: Vec<Located<'a>> = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let source = NamedInput::parse(&spec.from).map_err(at(index, "from"))?;
        wants_link(spec).map_err(at(index, "mode"))?;
        let to = spec.to.clone().filter(|to| !to.is_empty()).unwrap_or_else(|| source.place());
        let field = format!("inputs[{index}].to");
        let location = locate(root, &field, &to)?;
        let overlaps = |other: &FileLocation| other.lies_in(&location) || location.lies_in(other);
        if location.name().is_none() || overlaps(&metadata) {
            let words = "want a place that is not the workspace itself or its records";
            return Err(EngineError::invalid(&field, words));
        }
        if located.iter().any(|(_, _, other)| overlaps(other)) {
            let words = "the place of an earlier input, or above or below it";
            return Err(EngineError::invalid(&field, words));
        }
        located.push((spec, source, location));
    }
    Ok(located)
}

/// Opens what an input names, unless it is in the workspace.
fn find(
    live: &LiveWorkspace,
    stores: &EngineStores,
    source: &NamedInput,
    to: &FileLocation,
    spec: &InputSpec,
) -> Result<FoundInput, EngineError> {
    let to = to.shown().display().to_string();
    let mut record = InputRecord { to, mode: "copy".to_owned(), ..InputRecord::default() };
    let mut artifact = None;
    let mut is_link = false;
    let content = match source {
        NamedInput::Artifact { name, version } => {
            let key = ArtifactKey::new(artifact_scope(live)?, name)?;
            let is_pinned = spec.pin == Some(true);
            let pinned = || live.staged.newest(&key, &record.to).filter(|_| is_pinned);
            let store = stores.artifacts().and_then(LazyArtifacts::store);
            let opened = store.and_then(|store| store.open_version(&key, version.or_else(pinned)));
            let opened = opened.map_err(|error| match error.code {
                EngineCode::ArtifactNotFound | EngineCode::ArtifactVersionNotFound => missing(),
                _ => error,
            })?;
            record.resolved.clone_from(name);
            record.version = Some(opened.version);
            artifact = Some(key);
            FoundContent::File { file: opened.file, mode: ARTIFACT_MODE, bytes: opened.size_bytes }
        }
        NamedInput::Host(path) => {
            record.resolved.clone_from(path);
            match open_host(stores, path)? {
                HostEntry::File { file, mode, bytes } => FoundContent::File { file, mode, bytes },
                HostEntry::Directory(directory) => FoundContent::Directory(directory),
            }
        }
        NamedInput::Workspace(_) | NamedInput::Skill(..) => {
            is_link = wants_link(spec)?;
            if is_link {
                "link".clone_into(&mut record.mode);
            }
            FoundContent::Inside(source.clone())
        }
    };
    Ok(FoundInput { content, is_link, record, artifact })
}

/// Adds an input to the batch.
fn add(
    batch: &mut StageBatch<'_>,
    root: &WorkspaceRoot<'_>,
    input: &mut FoundInput,
    to: &FileLocation,
    limits: &TreeLimits,
) -> Result<(), EngineError> {
    match &mut input.content {
        FoundContent::File { file, mode, bytes } => {
            batch.file(to, &mut file.take(*bytes), *mode).map_err(engine_error)
        }
        FoundContent::Directory(directory) => {
            let source = DirectorySource::Directory(directory.as_fd());
            let staged = batch.directory(to, source, StagedAccess::Writable, limits);
            staged.map(|_| ()).map_err(tree_error)
        }
        FoundContent::Inside(source) => {
            let Some((shown, from)) = source.location(root)? else { return Err(missing()) };
            let added = match input.is_link {
                true => batch.link(to, &from),
                false => batch.copy(to, &from, limits),
            };
            input.record.resolved = shown;
            added.map_err(|error| match error {
                FilesError::NotFound { .. } => missing(),
                error => tree_error(error),
            })
        }
    }
}

/// Adds the input and its field to an error that names no file.
fn at(index: usize, field: &str) -> impl FnOnce(EngineError) -> EngineError {
    let path = format!("inputs[{index}].{field}");
    move |error| match error.code {
        EngineCode::InvalidRequest
        | EngineCode::PathEscape
        | EngineCode::InputUnsupported
        | EngineCode::InputNotFound
        | EngineCode::InputHostDenied => {
            let words = format!("{path}: {}", error.message);
            EngineError { message: words, ..error }.with("path", path)
        }
        _ => error.with("input", index),
    }
}
