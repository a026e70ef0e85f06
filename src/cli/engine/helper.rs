//! `cofferdam helper`: calls a helper of the engine.

use std::path::Path;

use clap::Args;

use super::failure::EngineFailure;
use super::output::print_line;
use crate::cli::failure::{Failure, error_words};
use crate::cli::stdio::read_input;
use crate::workspace::helpers::Helper;
use crate::workspace::{EngineCode, EngineError};

/// The longest input, bytes.
const INPUT_BYTES_MAX: u64 = 32 << 20;

const EXAMPLES: &str = "\
Examples:
  echo '{\"ref\": \"report.html@3\"}' | cofferdam helper parse_artifact_ref
  echo '{\"patterns\": [\"$OUTPUT_DIR/**\"]}' | cofferdam helper normalize_globs
  echo '{\"root\": \"/srv/workspace\"}' | cofferdam helper dir_digest

Helpers: extract_code_blocks build_block_spec normalize_globs parse_artifact_ref is_text_mime
result_string; and with {root}, a directory of this host: dir_digest ensure_layout load_metadata
save_metadata. Prints one line of JSON. An error is one line of JSON on stderr.
Exit codes: 0; 1 a file cannot be read or written; 2 wrong input or usage";

/// Calls a helper of the engine with JSON from stdin, without a server.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HelperCommand {
    /// The helper
    #[arg(value_name = "NAME")]
    name: String,
}

impl HelperCommand {
    /// Prints the answer.
    pub fn run(self) -> Result<u8, Failure> {
        self.call().or_else(EngineFailure::conclude)
    }

    fn call(self) -> Result<u8, EngineFailure> {
        let helper = Helper::find(&self.name).ok_or_else(|| {
            let names: Vec<&str> = Helper::names().collect();
            Failure::option("NAME", format!("{}: want one of {}", self.name, names.join(", ")))
        })?;
        let body = read_input(Path::new("-"), INPUT_BYTES_MAX)
            .map_err(|error| Failure::option("stdin", error_words(&error)))?;
        if body.len() as u64 > INPUT_BYTES_MAX {
            let words = format!("more than {INPUT_BYTES_MAX} bytes");
            return Err(EngineError::new(EngineCode::InvalidRequest, words).into());
        }
        print_line(&helper.call(&body)?)?;
        Ok(0)
    }
}
