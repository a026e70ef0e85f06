//! `cofferdam workspace`: workspaces of a service, their files and programs.

mod arguments;
mod attach;
mod exact_output;
mod exchange;
mod exit;
mod local_tree;
mod request;
mod run;
mod table;
mod verb;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::request::VerbRequest;
use self::table::verbs;
use self::verb::{VerbAction, WorkspaceVerb};
use super::failure::EngineFailure;
use crate::cli::failure::Failure;
use crate::cli::remote::server_options::ServerOptions;

const EXAMPLES: &str = "\
Examples:
  export COFFERDAM_SERVER=http://127.0.0.1:4040
  cofferdam workspace create --exec-id demo
  cofferdam workspace put $ID main.py work/main.py
  cofferdam workspace run $ID -- python3 work/main.py
  cofferdam workspace collect $ID 'out/**'
  cofferdam workspace rm $ID

Prints one line of JSON, `get` the bytes of a file, `run` and `attach` the output of the program. An error
is one line of JSON on stderr.
`cofferdam workspace COMMAND --help` describes each command.
Exit codes: 0; 1 not found, or the service refuses or fails; 2 wrong values or usage; of `run` and `attach`
the program's, as of `cofferdam exec`";

/// A verb with its words and options.
#[derive(Debug)]
pub struct WorkspaceCommand {
    verb: &'static WorkspaceVerb,
    matches: ArgMatches,
    server: ServerOptions,
}

impl Args for WorkspaceCommand {
    fn augment_args(command: Command) -> Command {
        let command = command.about("Use workspaces of a service, their files and programs");
        let command = command.after_help(EXAMPLES).disable_help_subcommand(true);
        let command = command.subcommand_required(true).arg_required_else_help(false);
        command.subcommands(verbs().map(arguments::command_of))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WorkspaceCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let called = matches.subcommand();
        let found = called
            .and_then(|(name, matches)| Some((verbs().find(|verb| verb.name == name)?, matches)));
        let missing = clap::error::ErrorKind::MissingSubcommand;
        let (verb, matches) = found.ok_or_else(|| clap::Error::new(missing))?;
        let server = ServerOptions::from_arg_matches(matches)?;
        Ok(Self { verb, matches: matches.clone(), server })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl WorkspaceCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        self.call().or_else(EngineFailure::conclude)
    }

    fn call(self) -> Result<u8, EngineFailure> {
        let client = self.server.client()?;
        let request = VerbRequest::of(self.verb, &self.matches)?;
        match self.verb.action {
            VerbAction::Exchange | VerbAction::Upload => exchange::exchange(&client, request)?,
            VerbAction::Download => exchange::download(&client, &request)?,
            VerbAction::Run => return run::run(client, &request),
            VerbAction::Attach => {
                let is_readonly = self.matches.get_flag("readonly");
                return attach::attach(&client, &request.path, is_readonly);
            }
        }
        Ok(0)
    }
}
