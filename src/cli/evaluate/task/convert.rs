//! `cofferdam task convert`: tasks of SWE-bench and of Harbor as tasks of ours.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::failure::{Failure, error_words};
use crate::cli::stdio::read_input;
use crate::evaluation::task::{SwebenchOptions, convert_harbor, convert_swebench};

/// The longest instance of SWE-bench, bytes.
const INSTANCE_BYTES_MAX: u64 = 64 << 20;

/// Makes a task in a new directory.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct TaskConvertCommand {
    #[command(subcommand)]
    command: TaskFormat,
}

#[derive(Debug, Subcommand)]
enum TaskFormat {
    /// An instance of SWE-bench: one JSON object
    Swebench(SwebenchCommand),
    /// A directory with task.toml, instruction.md and tests/test.sh
    Harbor(HarborCommand),
}

#[derive(Debug, Args)]
struct SwebenchCommand {
    /// The instance
    #[arg(value_name = "INSTANCE.json")]
    instance: PathBuf,
    /// The repository, instead of that of GitHub
    #[arg(long, value_name = "URL")]
    repo: Option<String>,
    /// A command of the install step; may be given again
    #[arg(long, value_name = "CMD")]
    install: Vec<String>,
    /// A command before the tests, for rebuilds
    #[arg(long, value_name = "CMD")]
    pre_test: Option<String>,
    /// How pytest is called
    #[arg(long, value_name = "CMD", default_value = "python3 -m pytest")]
    test_cmd: String,
    /// The directory to write; it is made, or is empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct HarborCommand {
    /// The task
    #[arg(value_name = "DIR")]
    task: PathBuf,
    /// The directory to write; it is made, or is empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl TaskConvertCommand {
    /// Writes the task.
    pub fn run(self) -> Result<u8, Failure> {
        match self.command {
            TaskFormat::Swebench(command) => command.run(),
            TaskFormat::Harbor(HarborCommand { task, out }) => {
                convert_harbor(&task, &out).map_err(|error| Failure::Usage(error.to_string()))?;
                Ok(0)
            }
        }
    }
}

impl SwebenchCommand {
    fn run(self) -> Result<u8, Failure> {
        let file = self.instance.display().to_string();
        let usage = |fault: String| Failure::Usage(format!("{file}: {fault}"));
        let bytes = read_input(&self.instance, INSTANCE_BYTES_MAX)
            .map_err(|error| usage(error_words(&error)))?;
        if bytes.len() as u64 > INSTANCE_BYTES_MAX {
            return Err(usage(format!("it is longer than {INSTANCE_BYTES_MAX} bytes")));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| usage("it is not UTF-8 text".to_owned()))?;
        let options = SwebenchOptions {
            repo: self.repo,
            install: self.install,
            pre_test: self.pre_test,
            test_command: self.test_cmd,
        };
        convert_swebench(&file, &text, &options, &self.out)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(0)
    }
}
