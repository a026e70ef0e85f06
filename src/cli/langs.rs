//! `cofferdam langs`: which languages can be run here, and why not the others.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::boxes::{Checking, Places};
use super::failure::Failure;
use super::print;
use crate::check::languages::LanguageStatus;

const EXAMPLES: &str = "\
Examples:
  cofferdam langs
  cofferdam langs --langs /srv/langs --json
  cofferdam langs --workspace .";

/// Lists every language: its files, its toolchain as seen in a box, its command.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Langs {
    #[command(flatten)]
    places: Places,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// One language as JSON, keys in this order.
#[derive(Debug, Serialize)]
struct Listed {
    slug: String,
    dir: String,
    files: Vec<String>,
    checker_required: bool,
    available: bool,
    reason: Option<String>,
    toolchain: Option<String>,
    command: Option<String>,
}

impl Langs {
    /// Prints the list.
    pub fn run(self) -> Result<u8, Failure> {
        let (config, found) = self.places.look(None)?;
        let Checking { executor, languages } = found.open(config.isolation, Vec::new())?;
        let listed: Vec<Listed> =
            languages.status(&executor).into_iter().map(Listed::from).collect();
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

impl From<LanguageStatus> for Listed {
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

/// The list for a reader: aligned, a short line a language. Commands are whole recipes, which the
/// JSON has.
fn table(listed: &[Listed]) -> String {
    let width = |text: fn(&Listed) -> &str| {
        listed.iter().map(|language| text(language).chars().count()).max().unwrap_or(0)
    };
    let toolchain: fn(&Listed) -> &str = |language| language.toolchain.as_deref().unwrap_or("-");
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

    fn status(slug: &str, available: Result<(&str, &str), &str>) -> Listed {
        Listed::from(LanguageStatus {
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
