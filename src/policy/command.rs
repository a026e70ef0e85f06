//! The allow-list of commands.

use super::program::{
    ProgramCache, ProgramName, ResolvedProgram, basename, is_in_path, parse_name,
};
use super::shell::is_multi_call;
use crate::base::rel_path::RelPath;
use crate::spec::job::{
    AllowedCommand, CommandRequest, ErrorCode, JobError, PolicyRequest, Sha256,
};

/// The working directory by which paths of the policy are read: they are absolute.
const NO_DIRECTORY: &str = ".";

/// An allowed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCommand {
    /// The program that was judged; none where it is not there, so that starting it will fail,
    /// and for a file of the workspace.
    pub program: Option<ResolvedProgram>,
    /// Where it is.
    pub location: CommandLocation,
    /// What the executed file has to hold, one of these; any contents where there are none.
    pub pinned: Vec<Sha256>,
}

/// Where a command's file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLocation {
    /// In the root file system.
    Root,
    /// In the copy of the workspace: it can be looked at only when that was made.
    Workspace(RelPath),
}

/// A program as it is held against the entries.
struct Candidate<'a> {
    /// What it is called by.
    name: &'a str,
    /// Where it is, or would be; none for a bare name that is not found.
    path: Option<&'a str>,
    program: Option<&'a ResolvedProgram>,
    /// Whether it was, or would be, found through the fixed PATH.
    in_path: bool,
}

/// How an entry and a program go together.
enum EntryMatch {
    Matches,
    /// The entry is of something else.
    Other,
    Mismatch(PinMismatch),
}

/// A pin that a program which is otherwise meant does not meet.
struct PinMismatch {
    pin: &'static str,
    expected: String,
    actual: String,
}

/// The command of a request, where an entry allows it.
pub(super) fn approve(
    command: &CommandRequest,
    policy: &PolicyRequest,
    programs: &mut ProgramCache<'_>,
) -> Result<ApprovedCommand, JobError> {
    let word = command.argv.first().map_or("", String::as_str);
    let entries = &policy.allowed_commands;
    // Nothing is looked at for a policy that allows nothing.
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
            let pinned = approve_at(entries, word, &path, program.as_ref(), programs)?;
            Ok(ApprovedCommand { program, location: CommandLocation::Root, pinned })
        }
        Some(ProgramName::Bare(name)) => approve_bare(entries, &name, programs),
    }
}

/// What a file of the workspace has to hold; none where no entry allows it. Only a path does.
fn workspace_pins(entries: &[AllowedCommand], file: &RelPath, name: &str) -> Option<Vec<Sha256>> {
    let mut meets = entries
        .iter()
        .filter(|entry| {
            let place = entry.path.as_deref().and_then(|path| parse_name(path, NO_DIRECTORY));
            place.is_some_and(|place| place == ProgramName::Workspace(file.clone()))
                && entry.basename.as_deref().is_none_or(|basename| basename == name)
        })
        .map(|entry| entry.sha256.clone())
        .peekable();
    meets.peek()?;
    // One entry without a pin is enough.
    Some(meets.collect::<Option<Vec<_>>>().unwrap_or_default())
}

fn approve_at(
    entries: &[AllowedCommand],
    word: &str,
    path: &str,
    program: Option<&ResolvedProgram>,
    programs: &mut ProgramCache<'_>,
) -> Result<Vec<Sha256>, JobError> {
    let found = program.map_or(path, |program| program.path.as_str());
    let name = basename(path);
    let in_path = is_in_path(found) && basename(found) == name;
    approve_candidate(
        entries,
        word,
        &Candidate { name, path: Some(path), program, in_path },
        programs,
    )
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

/// For a name that the fixed PATH does not have: the place that an entry gives it.
fn approve_entry_path(
    entries: &[AllowedCommand],
    name: &str,
    programs: &mut ProgramCache<'_>,
) -> Result<Option<ApprovedCommand>, JobError> {
    let (mut missing, mut error) = (None, None);
    for entry in entries.iter().filter(|entry| entry.basename.as_deref() == Some(name)) {
        let command = match entry.path.as_deref().and_then(|path| parse_name(path, NO_DIRECTORY)) {
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

/// What an allowed program's file has to hold; the error tells of the closest mismatch.
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
            // The digest is looked at last: who fails there has come furthest.
            EntryMatch::Mismatch(mismatch) => {
                if closest
                    .as_ref()
                    .is_none_or(|had| had.pin != "sha256" && mismatch.pin == "sha256")
                {
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
            let is_meant = entry.basename.is_some() || basename(path) == candidate.name;
            let actual = candidate.path.filter(|_| is_meant);
            return Ok(actual.map_or(EntryMatch::Other, |actual| {
                let (expected, actual) = (path.to_owned(), actual.to_owned());
                EntryMatch::Mismatch(PinMismatch { pin: "path", expected, actual })
            }));
        }
        None | Some(_) => {}
    }
    Ok(check_digest(entry, candidate.program))
}

/// Whether the program is the one at `path`: found there, or the same file.
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
    // Of a file that is many programs, a path means the one of its name.
    let is_same_program =
        !is_multi_call(basename(&program.target)) || basename(&path) == candidate.name;
    let there = programs.find(&path)?;
    Ok(is_same_program && there.is_some_and(|there| there.target == program.target))
}

/// A program that is not there holds nothing wrong: starting it will fail.
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
