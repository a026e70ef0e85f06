//! `cofferdam langs`: which languages this host can run, and why others are missing.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use crate::check::languages::LanguageStatus;
use crate::cli::failure::Failure;
use crate::cli::options::sandbox_options::{CheckBackend, SandboxOptions};
use crate::cli::stdio::print;

const EXAMPLES: &str = "\
Examples:
  cofferdam langs
  cofferdam langs --langs /srv/langs --json
  cofferdam langs --workspace .";

/// Lists every language: its files, its toolchain as seen in a sandbox, its command.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LangsCommand {
    #[command(flatten)]
    options: SandboxOptions,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// One language as JSON, keys in this order.
#[derive(Debug, Serialize)]
struct LanguageListing {
    slug: String,
    dir: String,
    files: Vec<String>,
    checker_required: bool,
    available: bool,
    reason: Option<String>,
    toolchain: Option<String>,
    command: Option<String>,
}

impl LangsCommand {
    /// Prints the list.
    pub fn run(self) -> Result<u8, Failure> {
        let (config, resolved) = self.options.resolve(None)?;
        let CheckBackend { executor, languages } = resolved.open(config.isolation, Vec::new())?;
        let listed: Vec<LanguageListing> =
            languages.status(&executor).into_iter().map(LanguageListing::from).collect();
        let text = if self.json {
            let json = serde_json::to_string(&listed);
            json.map_err(|error| Failure::Write { what: "the list", source: error.into() })? + "\n"
        } else {
            table(&listed)
        };
        print(&text)?;
        Ok(0)
    }
}

impl From<LanguageStatus> for LanguageListing {
    fn from(status: LanguageStatus) -> Self {
        let LanguageStatus { slug, folder, files, checker_required, available } = status;
        let is_available = available.is_ok();
        let (toolchain, command, reason) = match available {
            Ok((toolchain, command)) => (Some(toolchain), Some(command), None),
            Err(reason) => (None, None, Some(reason)),
        };
        Self {
            slug,
            dir: folder,
            files,
            checker_required,
            available: is_available,
            reason,
            toolchain,
            command,
        }
    }
}

/// The list as text: aligned columns, one short line for each language. Commands are whole recipes;
/// only the JSON contains them.
fn table(listed: &[LanguageListing]) -> String {
    let width = |text: fn(&LanguageListing) -> &str| {
        listed.iter().map(|language| text(language).chars().count()).max().unwrap_or(0)
    };
    let toolchain: fn(&LanguageListing) -> &str =
        |language| language.toolchain.as_deref().unwrap_or("-");
    let (slug_width, toolchain_width) = (width(|language| &language.slug), width(toolchain));
    let mut text = String::new();
    for language in listed {
        let word = if language.available { "available" } else { "missing" };
        let reason = language.reason.as_deref().unwrap_or_default();
        // Writing to a String does not fail.
        let _ = write!(text, "{:slug_width$}  {word:9}  ", language.slug);
        let _ = match reason {
            "" => writeln!(text, "{}", toolchain(language)),
            reason => writeln!(text, "{:toolchain_width$}  {reason}", toolchain(language)),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(slug: &str, available: Result<(&str, &str), &str>) -> LanguageListing {
        LanguageListing::from(LanguageStatus {
            slug: slug.to_owned(),
            folder: "check".to_owned(),
            files: vec![format!("solution.{slug}")],
            checker_required: false,
            available: available
                .map(|(version, command)| (version.to_owned(), command.to_owned()))
                .map_err(str::to_owned),
        })
    }

    #[test]
    fn the_columns_are_aligned_and_a_language_is_one_line() {
        let listed = [
            status("js", Ok(("v20.1", "cd check\nnode x.js\n"))),
            status("kotlin", Err("kotlinc is not installed")),
        ];
        let want = "js      available  v20.1\n\
                    kotlin  missing    -      kotlinc is not installed\n";
        assert_eq!(table(&listed), want);
    }

    #[test]
    fn a_missing_language_has_a_reason_and_nulls() {
        let json = serde_json::to_string(&status("ts", Err("no tsc"))).unwrap();
        assert_eq!(
            json,
            r#"{"slug":"ts","dir":"check","files":["solution.ts"],"checker_required":false,"available":false,"reason":"no tsc","toolchain":null,"command":null}"#
        );
    }
}
