//! The rule on commands: an entry of `policy.allowed_commands` must match.

use super::program::{
    ProgramCache, ProgramName, ResolvedProgram, basename, is_in_path, parse_name,
};
use super::shell::is_multi_call;
use cofferdam_core::job::{
    AllowedCommand, CommandRequest, ErrorCode, JobError, PolicyRequest, Sha256,
};
use cofferdam_core::values::rel_path::RelPath;

/// The working directory for paths in entries, which are absolute.
const NO_DIRECTORY: &str = ".";

/// A command that an entry allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCommand {
    /// The program, or `None` for a file of the workspace and for a program that does not exist:
    /// starting the latter fails.
    pub program: Option<ResolvedProgram>,
    /// Where its file is.
    pub location: CommandLocation,
    /// The digests that the executed file may have; empty if it may have any.
    pub pinned: Vec<Sha256>,
}

/// Where the file of a command is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLocation {
    /// In the root file system.
    Root,
    /// In the copy of the workspace, so it can be read only after the copy is made.
    Workspace(RelPath),
}

/// A program to compare with the entries.
struct Candidate<'a> {
    /// The name it is called by.
    name: &'a str,
    /// Its path, whether or not it exists; `None` for a bare name that is not found.
    path: Option<&'a str>,
    program: Option<&'a ResolvedProgram>,
    /// Whether that path lies in the fixed PATH.
    in_path: bool,
}

impl<'a> Candidate<'a> {
    fn at(path: &'a str, program: Option<&'a ResolvedProgram>) -> Self {
        let found = program.map_or(path, |program| program.path.as_str());
        let name = basename(path);
        let in_path = is_in_path(found) && basename(found) == name;
        Self { name, path: Some(path), program, in_path }
    }
}

/// The result of comparing an entry with a program.
enum EntryMatch {
    Matches,
    /// The entry is about another program.
    Other,
    Mismatch(PinMismatch),
}

/// A path or a digest of an entry that differs from the program's.
struct PinMismatch {
    pin: &'static str,
    expected: String,
    actual: String,
}

/// Returns the command of a request if an entry allows it.
pub(super) fn approve(
    command: &CommandRequest,
    policy: &PolicyRequest,
    programs: &mut ProgramCache<'_>,
) -> Result<ApprovedCommand, JobError> {
    let word = command.argv.first().map_or("", String::as_str);
    let entries = &policy.allowed_commands;
    // A policy that allows nothing needs no lookup.
    if entries.is_empty() {
        return Err(denied(word));
    }
    match parse_name(word, &command.cwd) {
        None => Err(denied(word)),
        Some(ProgramName::Workspace(file)) => {
            let pinned = workspace_pins(entries, &file, file.file_name());
            let pinned = pinned.ok_or_else(|| denied(word))?;
            Ok(ApprovedCommand {
                program: None,
                location: CommandLocation::Workspace(file),
                pinned,
            })
        }
        Some(ProgramName::Root(path)) => {
            let program = programs.find(&path)?;
            let candidate = Candidate::at(&path, program.as_ref());
            let pinned = approve_candidate(entries, word, &candidate, programs)?;
            Ok(ApprovedCommand { program, location: CommandLocation::Root, pinned })
        }
        Some(ProgramName::Bare(name)) => approve_bare(entries, &name, programs),
    }
}

/// The file that the path of an entry names.
fn entry_file(entry: &AllowedCommand) -> Option<ProgramName> {
    parse_name(entry.path.as_deref()?, NO_DIRECTORY)
}

/// Returns the digests that a file of the workspace may have, or `None` if no entry allows it.
/// Only an entry with its path does.
fn workspace_pins(entries: &[AllowedCommand], file: &RelPath, name: &str) -> Option<Vec<Sha256>> {
    let mut digests = entries
        .iter()
        .filter(|entry| {
            entry_file(entry).is_some_and(|named| named == ProgramName::Workspace(file.clone()))
                && entry.basename.as_deref().is_none_or(|basename| basename == name)
        })
        .map(|entry| entry.sha256.clone())
        .peekable();
    digests.peek()?;
    // One entry without a digest allows any contents.
    Some(digests.collect::<Option<Vec<_>>>().unwrap_or_default())
}

fn approve_bare(
    entries: &[AllowedCommand],
    name: &str,
    programs: &mut ProgramCache<'_>,
) -> Result<ApprovedCommand, JobError> {
    let program = programs.find(name)?;
    if program.is_none()
        && let Some(command) = approve_entry_path(entries, name, programs)?
    {
        return Ok(command);
    }
    let path = program.as_ref().map(|program| program.path.as_str());
    let candidate = Candidate { name, path, program: program.as_ref(), in_path: true };
    let pinned = approve_candidate(entries, name, &candidate, programs)?;
    Ok(ApprovedCommand { program, location: CommandLocation::Root, pinned })
}

/// Approves a name that is not in the fixed PATH by the path of an entry with that basename.
fn approve_entry_path(
    entries: &[AllowedCommand],
    name: &str,
    programs: &mut ProgramCache<'_>,
) -> Result<Option<ApprovedCommand>, JobError> {
    let (mut missing, mut error) = (None, None);
    for entry in entries.iter().filter(|entry| entry.basename.as_deref() == Some(name)) {
        let command = match entry_file(entry) {
            Some(ProgramName::Workspace(file)) => {
                let Some(pinned) = workspace_pins(entries, &file, name) else { continue };
                ApprovedCommand {
                    program: None,
                    location: CommandLocation::Workspace(file),
                    pinned,
                }
            }
            Some(ProgramName::Root(path)) => {
                let program = programs.find(&path)?;
                if let EntryMatch::Mismatch(mismatch) = check_digest(entry, program.as_ref()) {
                    error = Some(pin_mismatch(name, mismatch));
                    continue;
                }
                let pinned = entry.sha256.iter().cloned().collect();
                ApprovedCommand { program, location: CommandLocation::Root, pinned }
            }
            Some(ProgramName::Bare(_)) | None => continue,
        };
        if command.program.is_some() || command.location != CommandLocation::Root {
            return Ok(Some(command));
        }
        missing = Some(command);
    }
    match (missing, error) {
        (None, Some(error)) => Err(error),
        (missing, _) => Ok(missing),
    }
}

/// Returns the digests that the program's file may have. The error names the closest mismatch.
fn approve_candidate(
    entries: &[AllowedCommand],
    word: &str,
    candidate: &Candidate<'_>,
    programs: &mut ProgramCache<'_>,
) -> Result<Vec<Sha256>, JobError> {
    let mut closest: Option<PinMismatch> = None;
    for entry in entries {
        match match_entry(entry, candidate, programs)? {
            EntryMatch::Matches => return Ok(entry.sha256.iter().cloned().collect()),
            EntryMatch::Other => {}
            // The digest is compared last, so a mismatch there is the closest.
            EntryMatch::Mismatch(mismatch) => {
                let is_closer =
                    |than: &PinMismatch| than.pin != "sha256" && mismatch.pin == "sha256";
                if closest.as_ref().is_none_or(is_closer) {
                    closest = Some(mismatch);
                }
            }
        }
    }
    Err(closest.map_or_else(|| denied(word), |mismatch| pin_mismatch(word, mismatch)))
}

fn match_entry(
    entry: &AllowedCommand,
    candidate: &Candidate<'_>,
    programs: &mut ProgramCache<'_>,
) -> Result<EntryMatch, JobError> {
    if entry.basename.as_deref().is_some_and(|basename| basename != candidate.name) {
        return Ok(EntryMatch::Other);
    }
    match entry.path.as_deref() {
        None if !candidate.in_path => return Ok(EntryMatch::Other),
        Some(path) if !is_at(path, candidate, programs)? => {
            let is_same_name = entry.basename.is_some() || basename(path) == candidate.name;
            let actual = candidate.path.filter(|_| is_same_name);
            return Ok(actual.map_or(EntryMatch::Other, |actual| {
                let (expected, actual) = (path.to_owned(), actual.to_owned());
                EntryMatch::Mismatch(PinMismatch { pin: "path", expected, actual })
            }));
        }
        None | Some(_) => {}
    }
    Ok(check_digest(entry, candidate.program))
}

/// Whether the program was found at `path` or is the same file.
fn is_at(
    path: &str,
    candidate: &Candidate<'_>,
    programs: &mut ProgramCache<'_>,
) -> Result<bool, JobError> {
    let Some(ProgramName::Root(path)) = parse_name(path, NO_DIRECTORY) else { return Ok(false) };
    if candidate.path == Some(&path) {
        return Ok(true);
    }
    let Some(program) = candidate.program else { return Ok(false) };
    if program.path == path {
        return Ok(true);
    }
    // The path of a multi-call program means only the program of that name.
    let is_same_program =
        !is_multi_call(basename(&program.target)) || basename(&path) == candidate.name;
    let other = programs.find(&path)?;
    Ok(is_same_program && other.is_some_and(|other| other.target == program.target))
}

/// A program that does not exist matches every digest, because starting it fails.
fn check_digest(entry: &AllowedCommand, program: Option<&ResolvedProgram>) -> EntryMatch {
    match (&entry.sha256, program) {
        (Some(expected), Some(program)) if *expected != program.sha256 => {
            let (expected, actual) = (expected.as_str(), program.sha256.as_str());
            let (expected, actual) = (expected.to_owned(), actual.to_owned());
            EntryMatch::Mismatch(PinMismatch { pin: "sha256", expected, actual })
        }
        _ => EntryMatch::Matches,
    }
}

fn denied(word: &str) -> JobError {
    JobError::new(ErrorCode::CommandDenied, "command is not allowed by policy").with("argv0", word)
}

fn pin_mismatch(word: &str, mismatch: PinMismatch) -> JobError {
    denied(word)
        .with("pin", mismatch.pin)
        .with("expected", mismatch.expected)
        .with("actual", mismatch.actual)
}
