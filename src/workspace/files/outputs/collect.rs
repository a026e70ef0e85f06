//! Collects outputs by a specification.

use std::path::Path;
use std::time::SystemTime;

use super::name_template::NameTemplate;
use super::save::save_files;
use crate::workspace::artifacts::SavedVersion;
use crate::workspace::error::EngineError;
use crate::workspace::files::error::engine_error;
use crate::workspace::files::patterns::relative_patterns;
use crate::workspace::files::staging::records::metadata_with;
use crate::workspace::files::staging::stores::EngineStores;
use crate::workspace::helpers::{FileRef, OmittedOutput, OutputManifest, OutputRecord, OutputSpec};
use crate::workspace::request::encode;
use crate::workspace::service::live::WorkspaceUse;
use crate::workspace::service::span::Span;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::files::{self, CollectLimits, CollectOmission, CollectedFile, CollectedFiles};

/// Files that are collected unless the specification has another number.
const FILES_DEFAULT: usize = 100;
/// What the records may take.
const METADATA_BYTES: u64 = 64 << 10;

/// Collects what `spec` asks for, and saves it if it says so.
///
/// # Errors
/// A pattern or the template is malformed, a file to save was cut, or the store has no room. Nothing is saved then.
pub fn collect_outputs(
    used: &mut WorkspaceUse,
    stores: &EngineStores,
    spec: &OutputSpec,
) -> Result<OutputManifest, EngineError> {
    collect(used, stores, spec, spec.inline)
}

/// As [`collect_outputs`]; each file has its contents, whatever `spec` says.
///
/// # Errors
/// As [`collect_outputs`].
pub fn collect_output_files(
    used: &mut WorkspaceUse,
    stores: &EngineStores,
    spec: &OutputSpec,
) -> Result<Vec<FileRef>, EngineError> {
    Ok(collect(used, stores, spec, true)?.files)
}

/// Judges the patterns and the template of `spec`, the value of the field `field` of a request. `top` is where programs
/// see the workspace; patterns below it are judged only if it is known.
///
/// # Errors
/// The first one that is malformed.
pub fn check_outputs(
    field: &str,
    spec: &OutputSpec,
    top: Option<&Path>,
) -> Result<(), EngineError> {
    relative_patterns(&format!("{field}.globs"), &spec.globs, top)?;
    let template = NameTemplate::parse(&spec.name_template).map(drop);
    template.map_err(|error| error.with("path", format!("{field}.name_template")))
}

fn collect(
    used: &mut WorkspaceUse,
    stores: &EngineStores,
    spec: &OutputSpec,
    with_contents: bool,
) -> Result<OutputManifest, EngineError> {
    let span = Span::begin("workspace.collect");
    let template = NameTemplate::parse(&spec.name_template)?;
    let live = used.workspace();
    let globs = relative_patterns("globs", &spec.globs, Some(live.settings.path.as_path()))?;
    let collected = live.with_root(|root| files::collect(root, &globs, limits(spec)));
    let CollectedFiles { files, omitted, limits_hit } = collected.map_err(engine_error)?;
    let saved = match spec.save {
        true => save_files(used.workspace(), stores, &template, &files)?,
        false => Vec::new(),
    };
    let record = OutputRecord {
        // As they were asked for: variables stay.
        globs: spec
            .globs
            .iter()
            .map(|glob| glob.trim())
            .filter(|glob| !glob.is_empty())
            .map(str::to_owned)
            .collect(),
        saved_as: saved.iter().map(|saved| saved.name.clone()).collect(),
        versions: saved.iter().map(|saved| saved.version).collect(),
        limits_hit,
        ts: String::new(),
    };
    // What is saved stays saved. A program that fills its disk must not keep its outputs from being collected.
    if let Err(error) = note(used, record) {
        log::warn!(workspace_id = used.workspace().id.as_str(), reason = error.to_string();
            "collected outputs are not in the records");
    }
    span.end_collect(&used.workspace().id, globs.len(), files.len());
    let mut saved = saved.into_iter();
    let files = files.into_iter().map(|file| file_ref(file, saved.next(), with_contents));
    let omitted = omitted.into_iter().map(|(path, reason)| OmittedOutput {
        path: path.display().to_string(),
        reason: CollectOmission::reason(reason).to_owned(),
    });
    Ok(OutputManifest { files: files.collect(), limits_hit, omitted: omitted.collect() })
}

/// The limits that `spec` names. 0 is the default, and more than the most is the most.
fn limits(spec: &OutputSpec) -> CollectLimits {
    let most = CollectLimits::default();
    let within = |asked: u64, default: usize, most: usize| match usize::try_from(asked) {
        Ok(0) => default,
        asked => asked.unwrap_or(usize::MAX).min(most),
    };
    let (file, total) = (most.file_bytes_max, most.total_bytes_max);
    CollectLimits {
        files_max: within(spec.max_files, FILES_DEFAULT, most.files_max),
        file_bytes_max: within(spec.max_file_bytes, file, file),
        total_bytes_max: within(spec.max_total_bytes, total, total),
    }
}

fn file_ref(file: CollectedFile, saved: Option<SavedVersion>, with_contents: bool) -> FileRef {
    let CollectedFile { name, content, size_bytes, truncated, mime_type } = file;
    let (encoding, content) = if with_contents { encode(content) } else { Default::default() };
    let (saved_as, version) = saved.map(|saved| (saved.name, saved.version)).unzip();
    FileRef {
        name: name.display().to_string(),
        mime_type: mime_type.to_owned(),
        content,
        encoding,
        saved_as,
        version,
        size_bytes,
        truncated,
    }
}

/// Adds a record to the workspace's metadata.
fn note(used: &mut WorkspaceUse, mut record: OutputRecord) -> Result<(), EngineError> {
    used.reserve(METADATA_BYTES)?;
    let live = used.workspace();
    let now = SystemTime::now();
    record.ts = rfc3339(now);
    live.with_root(|root| {
        let _turn = live.staged.metadata_turn();
        let contents = metadata_with(root, now, |metadata| metadata.outputs.push(record))?;
        match contents {
            Some(contents) => files::save_metadata(root, &contents).map_err(engine_error),
            None => Ok(()),
        }
    })
}
