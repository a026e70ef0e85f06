//! A command, what it wraps, and what that wraps in turn.

use super::command::allow_wrapped;
use super::program::{Lookup, Program, last_part};
use super::shell::{Found, How, is_shell, names};
use super::wrapper::{Invocation, Setting, Unwrapped, is_fixed_path, unwrap};
use super::wrapper_table::{Wrapper, wrapper};
use cofferdam_core::job::{JobError, RunJobRequest};

/// How many wrappers may be around each other.
const DEPTH_MAX: usize = 8;
/// How many wrapped commands are looked at in one job.
const COMMANDS_MAX: usize = 32;

/// What was found behind a command, all of it allowed by the allow-list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// The first shell, or the first thing that may be one.
    pub shell: Option<Found>,
    /// Names of variables that wrappers set, in their order.
    pub variables: Vec<String>,
}

/// Follows the command of `request`, which is `program`, to its end. The error is of a wrapped
/// command that is not allowed.
pub(super) fn follow(
    request: &RunJobRequest,
    program: Option<&Program>,
    lookup: &mut Lookup<'_>,
) -> Result<Chain, JobError> {
    let is_fixed = request.command.env.get("PATH").is_none_or(|path| is_fixed_path(path));
    let setting = Setting { is_foreign_path: !is_fixed, ..Setting::default() };
    let words = request.command.argv.clone();
    let mut walk = Walk { request, lookup, chain: Chain::default(), left: COMMANDS_MAX };
    walk.command(&Invocation { words, setting }, program.cloned().as_slice(), 0)?;
    Ok(walk.chain)
}

struct Walk<'a, 'b> {
    request: &'a RunJobRequest,
    lookup: &'a mut Lookup<'b>,
    chain: Chain,
    /// How many more commands are looked at.
    left: usize,
}

impl Walk<'_, '_> {
    /// Looks at a command that is allowed, and may be one of `programs`.
    fn command(
        &mut self,
        invocation: &Invocation,
        programs: &[Program],
        depth: usize,
    ) -> Result<(), JobError> {
        let Some((word, arguments)) = invocation.words.split_first() else { return Ok(()) };
        if is_shell(word, programs) {
            self.found(word, How::IsShell);
        }
        for row in rows(word, programs) {
            if depth == DEPTH_MAX {
                self.found(word, How::Untold);
                break;
            }
            match unwrap(row, arguments, &invocation.setting, self.left) {
                Unwrapped::Shell => self.found(word, How::StartsShell),
                Unwrapped::Untold => self.found(word, How::Untold),
                Unwrapped::Commands(wrapped) => {
                    for inner in &wrapped {
                        self.wrapped(word, inner, depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn wrapped(
        &mut self,
        wrapper: &str,
        invocation: &Invocation,
        depth: usize,
    ) -> Result<(), JobError> {
        let Setting { is_moved, is_foreign_path, variables, .. } = &invocation.setting;
        for name in variables {
            if !self.chain.variables.contains(name) {
                self.chain.variables.push(name.clone());
            }
        }
        let Some(word) = invocation.words.first() else { return Ok(()) };
        let is_elsewhere = match word.find('/') {
            Some(0) => false,
            Some(_) => *is_moved,
            None => *is_foreign_path,
        };
        if is_elsewhere || self.left == 0 {
            self.found(wrapper, How::Untold);
            return Ok(());
        }
        self.left -= 1;
        let entries = &self.request.policy.allowed_commands;
        let programs = allow_wrapped(entries, word, &self.request.command.cwd, self.lookup)
            .map_err(|error| error.with("wrapper", last_part(wrapper)))?;
        self.command(invocation, &programs, depth)
    }

    fn found(&mut self, word: &str, how: How) {
        self.chain.shell.get_or_insert_with(|| Found { word: word.to_owned(), how });
    }
}

/// The rows of what is called `word`: by that name, else by those of the files it may be.
fn rows(word: &str, programs: &[Program]) -> Vec<&'static Wrapper> {
    let mut known = names(word, programs).map(wrapper);
    if let Some(Some(row)) = known.next() {
        return vec![row];
    }
    let mut rows: Vec<&Wrapper> = Vec::new();
    for row in known.flatten() {
        if !rows.iter().any(|had| had.names == row.names) {
            rows.push(row);
        }
    }
    rows
}
