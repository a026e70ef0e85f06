//! The allow-list of commands.

use super::program::{Lookup, Named, Program, is_in_path, last_part, named};
use super::shell::is_multi_call;
use super::{JudgedCommand, Place};
use crate::base::rel_path::RelPath;
use crate::spec::job::{
    AllowedCommand, CommandRequest, ErrorCode, JobError, PolicyRequest, Sha256,
};

/// The working directory by which paths of the policy are read: they are absolute.
const NO_DIRECTORY: &str = ".";

/// A program as it is held against the entries.
struct Candidate<'a> {
    /// What it is called by.
    name: &'a str,
    /// Where it is, or would be; none for a bare name that is not found.
    path: Option<&'a str>,
    program: Option<&'a Program>,
    /// Whether it was, or would be, found through the fixed PATH.
    in_path: bool,
}

/// How an entry and a program go together.
enum Fit {
    Meets,
    /// The entry is of something else.
    Other,
    Misses(Miss),
}

/// A pin that a program which is otherwise meant does not meet.
struct Miss {
    pin: &'static str,
    expected: String,
    actual: String,
}

/// The command of a request, where an entry allows it.
pub(super) fn allow(
    command: &CommandRequest,
    policy: &PolicyRequest,
    lookup: &mut Lookup<'_>,
) -> Result<JudgedCommand, JobError> {
    let word = command.argv.first().map_or("", String::as_str);
    let entries = &policy.allowed_commands;
    // Nothing is looked at for a policy that allows nothing.
    if entries.is_empty() {
        return Err(denied(word));
    }
    match named(word, &command.cwd) {
        None => Err(denied(word)),
        Some(Named::Workspace(file)) => {
            let pinned = workspace_pins(entries, &file, file.file_name());
            let pinned = pinned.ok_or_else(|| denied(word))?;
            Ok(JudgedCommand { program: None, place: Place::Workspace(file), pinned })
        }
        Some(Named::Root(path)) => {
            let program = lookup.find(&path)?;
            let pinned = allow_at(entries, word, &path, program.as_ref(), lookup)?;
            Ok(JudgedCommand { program, place: Place::Root, pinned })
        }
        Some(Named::Bare(name)) => allow_bare(entries, &name, lookup),
    }
}

/// What a file of the workspace has to hold; none where no entry allows it. Only a path does.
fn workspace_pins(entries: &[AllowedCommand], file: &RelPath, name: &str) -> Option<Vec<Sha256>> {
    let mut meets = entries
        .iter()
        .filter(|entry| {
            let place = entry.path.as_deref().and_then(|path| named(path, NO_DIRECTORY));
            place.is_some_and(|place| place == Named::Workspace(file.clone()))
                && entry.basename.as_deref().is_none_or(|basename| basename == name)
        })
        .map(|entry| entry.sha256.clone())
        .peekable();
    meets.peek()?;
    // One entry without a pin is enough.
    Some(meets.collect::<Option<Vec<_>>>().unwrap_or_default())
}

fn allow_at(
    entries: &[AllowedCommand],
    word: &str,
    path: &str,
    program: Option<&Program>,
    lookup: &mut Lookup<'_>,
) -> Result<Vec<Sha256>, JobError> {
    let found = program.map_or(path, |program| program.path.as_str());
    let name = last_part(path);
    let in_path = is_in_path(found) && last_part(found) == name;
    allow_candidate(entries, word, &Candidate { name, path: Some(path), program, in_path }, lookup)
}

fn allow_bare(
    entries: &[AllowedCommand],
    name: &str,
    lookup: &mut Lookup<'_>,
) -> Result<JudgedCommand, JobError> {
    let program = lookup.find(name)?;
    if program.is_none()
        && let Some(command) = allow_pinned_place(entries, name, lookup)?
    {
        return Ok(command);
    }
    let path = program.as_ref().map(|program| program.path.as_str());
    let candidate = Candidate { name, path, program: program.as_ref(), in_path: true };
    let pinned = allow_candidate(entries, name, &candidate, lookup)?;
    Ok(JudgedCommand { program, place: Place::Root, pinned })
}

/// For a name that the fixed PATH does not have: the place that an entry gives it.
fn allow_pinned_place(
    entries: &[AllowedCommand],
    name: &str,
    lookup: &mut Lookup<'_>,
) -> Result<Option<JudgedCommand>, JobError> {
    let (mut missing, mut error) = (None, None);
    for entry in entries.iter().filter(|entry| entry.basename.as_deref() == Some(name)) {
        let command = match entry.path.as_deref().and_then(|path| named(path, NO_DIRECTORY)) {
            Some(Named::Workspace(file)) => {
                let Some(pinned) = workspace_pins(entries, &file, name) else { continue };
                JudgedCommand { program: None, place: Place::Workspace(file), pinned }
            }
            Some(Named::Root(path)) => {
                let program = lookup.find(&path)?;
                if let Fit::Misses(miss) = check_digest(entry, program.as_ref()) {
                    error = Some(missed(name, miss));
                    continue;
                }
                let pinned = entry.sha256.iter().cloned().collect();
                JudgedCommand { program, place: Place::Root, pinned }
            }
            Some(Named::Bare(_)) | None => continue,
        };
        if command.program.is_some() || command.place != Place::Root {
            return Ok(Some(command));
        }
        missing = Some(command);
    }
    match (missing, error) {
        (None, Some(error)) => Err(error),
        (missing, _) => Ok(missing),
    }
}

/// What an allowed program's file has to hold; the error tells of the closest miss.
fn allow_candidate(
    entries: &[AllowedCommand],
    word: &str,
    candidate: &Candidate<'_>,
    lookup: &mut Lookup<'_>,
) -> Result<Vec<Sha256>, JobError> {
    let mut closest: Option<Miss> = None;
    for entry in entries {
        match fit(entry, candidate, lookup)? {
            Fit::Meets => return Ok(entry.sha256.iter().cloned().collect()),
            Fit::Other => {}
            // The digest is looked at last: who fails there has come furthest.
            Fit::Misses(miss) => {
                if closest.as_ref().is_none_or(|had| had.pin != "sha256" && miss.pin == "sha256") {
                    closest = Some(miss);
                }
            }
        }
    }
    Err(closest.map_or_else(|| denied(word), |miss| missed(word, miss)))
}

fn fit(
    entry: &AllowedCommand,
    candidate: &Candidate<'_>,
    lookup: &mut Lookup<'_>,
) -> Result<Fit, JobError> {
    if entry.basename.as_deref().is_some_and(|basename| basename != candidate.name) {
        return Ok(Fit::Other);
    }
    match entry.path.as_deref() {
        None if !candidate.in_path => return Ok(Fit::Other),
        Some(path) if !is_at(path, candidate, lookup)? => {
            let is_meant = entry.basename.is_some() || last_part(path) == candidate.name;
            let actual = candidate.path.filter(|_| is_meant);
            return Ok(actual.map_or(Fit::Other, |actual| {
                let (expected, actual) = (path.to_owned(), actual.to_owned());
                Fit::Misses(Miss { pin: "path", expected, actual })
            }));
        }
        None | Some(_) => {}
    }
    Ok(check_digest(entry, candidate.program))
}

/// Whether the program is the one at `path`: found there, or the same file.
fn is_at(path: &str, candidate: &Candidate<'_>, lookup: &mut Lookup<'_>) -> Result<bool, JobError> {
    let Some(Named::Root(path)) = named(path, NO_DIRECTORY) else { return Ok(false) };
    if candidate.path == Some(&path) {
        return Ok(true);
    }
    let Some(program) = candidate.program else { return Ok(false) };
    if program.path == path {
        return Ok(true);
    }
    // Of a file that is many programs, a path means the one of its name.
    let is_same_program =
        !is_multi_call(last_part(&program.target)) || last_part(&path) == candidate.name;
    let there = lookup.find(&path)?;
    Ok(is_same_program && there.is_some_and(|there| there.target == program.target))
}

/// A program that is not there holds nothing wrong: starting it will fail.
fn check_digest(entry: &AllowedCommand, program: Option<&Program>) -> Fit {
    match (&entry.sha256, program) {
        (Some(expected), Some(program)) if *expected != program.sha256 => {
            let (expected, actual) = (expected.as_str(), program.sha256.as_str());
            let (expected, actual) = (expected.to_owned(), actual.to_owned());
            Fit::Misses(Miss { pin: "sha256", expected, actual })
        }
        _ => Fit::Meets,
    }
}

fn denied(word: &str) -> JobError {
    JobError::new(ErrorCode::CommandDenied, "command is not allowed by policy").with("argv0", word)
}

fn missed(word: &str, miss: Miss) -> JobError {
    denied(word).with("pin", miss.pin).with("expected", miss.expected).with("actual", miss.actual)
}
