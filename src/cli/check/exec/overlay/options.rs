//! The options of `cofferdam exec` that try a command without its effects.

use std::path::PathBuf;

use clap::Args;

/// Trying a command without its effects.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Trying without effects")]
pub struct OverlayOptions {
    /// Show a directory of the host at its own path, copy-on-write, and begin there; print what changed
    #[arg(long, value_name = "DIR")]
    pub overlay: Vec<PathBuf>,
    /// Leave the directories as they are [default]
    #[arg(long, requires = "overlay", conflicts_with = "commit")]
    dry_run: bool,
    /// Apply the changes if the command exits 0 and nothing else changed the same files
    #[arg(long, requires = "overlay")]
    pub commit: bool,
    /// Write the changes as JSON
    #[arg(long, value_name = "FILE", requires = "overlay")]
    pub changes: Option<PathBuf>,
    /// Write the changes as a patch for `git apply`
    #[arg(long, value_name = "FILE", requires = "overlay")]
    pub patch: Option<PathBuf>,
    /// Keep paths read-only and out of every commit; .git/hooks, .git/config and others are by default
    #[arg(long, value_name = "GLOB", requires = "overlay")]
    pub protect: Vec<String>,
    /// Lift the protection of paths, also that by default
    #[arg(long, value_name = "GLOB", requires = "overlay")]
    pub unprotect: Vec<String>,
}
