//! `cofferdam task check`: findings on stdout, and whether there are any in the exit code.

use std::path::PathBuf;

use clap::Args;

use super::scratch::ScratchDirectory;
use crate::cli::failure::Failure;
use crate::cli::stdio::{for_terminal, print};
use crate::evaluation::task::{ArchiveBounds, FindingLevel, TaskFinding, check_task};

/// The exit code of a task with findings.
const FINDINGS: u8 = 1;

const AFTER_HELP: &str = "\
Exit codes: 0 clean, 1 findings, 2 the task cannot be read";

/// Checks a task without running anything of it.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TaskCheckCommand {
    /// A directory, or a tar, tar.gz, tar.zst or zip archive
    #[arg(value_name = "DIR|ARCHIVE")]
    task: PathBuf,
    /// Print a JSON array of {file, line, level, message}
    #[arg(long)]
    json: bool,
}

impl TaskCheckCommand {
    /// Prints the findings.
    pub fn run(self) -> Result<u8, Failure> {
        let scratch = ScratchDirectory::create()?;
        let found = check_task(&self.task, scratch.path(), ArchiveBounds::default())
            .map_err(|error| Failure::Usage(format!("{}: {error}", self.task.display())))?;
        let text = if self.json {
            let json = serde_json::to_string(&found);
            json.map_err(|error| Failure::Write { what: "the findings", source: error.into() })?
                + "\n"
        } else {
            found.iter().map(line).collect()
        };
        print(&text)?;
        Ok(if found.is_empty() { 0 } else { FINDINGS })
    }
}

/// One finding as text: `file:line: level: message`.
fn line(finding: &TaskFinding) -> String {
    let mut place = finding.file.clone().unwrap_or_default();
    if let Some(line) = finding.line {
        place += &format!(":{line}");
    }
    if !place.is_empty() {
        place += ": ";
    }
    let level = match finding.level {
        FindingLevel::Error => "error",
        FindingLevel::Warning => "warning",
    };
    let text = format!("{place}{level}: {}", finding.message);
    for_terminal(&text.replace('\n', " ")) + "\n"
}
