//! Commands whose options are defined only when they are called.

use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The arguments `T` of a command, defined when the command is called. Every start of `cofferdam` would
/// else define the options of all commands, which takes longer than to start a small program.
#[derive(Debug)]
pub struct Deferred<T>(pub T);

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_args_for_update))
    }
}

impl<T: Args> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Defines `command` further. Its one-line description stays, as without the delay.
fn keeping_about(command: Command, define: fn(Command) -> Command) -> Command {
    let about = command.get_about().cloned();
    let command = define(command).long_about(None);
    match about {
        Some(about) => command.about(about),
        None => command,
    }
}
