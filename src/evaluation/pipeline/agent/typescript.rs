//! Whether the node of a root file system runs TypeScript: it is tried, once for each file of it.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::stat::fstat;

use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::pipeline::program::c_strings;
use crate::evaluation::repository::phase_environment;
use crate::evaluation::trees::{EvaluationRoot, TMP};
use crate::executor::{Executor, FoundProgram};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{Outcome, RunSpec, SetupFailure, Watch, WorkspacePath};
use cofferdam_sandbox::engine::DiskSpace;
use cofferdam_tree::put;

/// A program that runs only where types are understood.
const TRIED: &str = "const ended: number = 0;\nprocess.exit(ended);\n";
const TRIED_NAME: &str = "tried.ts";
const TRIED_PATH: &str = "/tmp/tried.ts";
/// How long node may take to run it.
const TRIAL_TIME: Duration = Duration::from_secs(20);
const TRIAL_BYTES_MAX: u64 = 16 << 20;
const TRIAL_INODES_MAX: u64 = 1024;
/// Files of node that are remembered.
const KNOWN_MAX: usize = 256;
/// The options that are tried in turn: newer versions need none.
const OPTIONS: [&[&str]; 2] = [&[], &["--experimental-strip-types"]];

/// A file of node: device, inode, and when it was changed.
type NodeFile = (u64, u64, i64, i64);

/// What is known of the files of node.
#[derive(Debug, Default)]
pub struct NodeVersions {
    known: Mutex<BTreeMap<NodeFile, Option<&'static [&'static str]>>>,
}

impl NodeVersions {
    /// The options with which the node of `root` runs TypeScript; `None` if it does not, or is missing.
    ///
    /// # Errors
    /// It cannot be tried.
    pub fn typescript_options(
        &self,
        root: &EvaluationRoot,
        bounds: PhaseBounds,
    ) -> Result<Option<&'static [&'static str]>, SetupFailure> {
        let Some(node) = root.trees.executor().find_program("node")? else { return Ok(None) };
        let file = identify(&node)?;
        // Held meanwhile, so that a file is tried once.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(options) = known.get(&file) {
            return Ok(*options);
        }
        let mut found = None;
        for options in OPTIONS {
            if runs_typescript(root, &node.path, options, bounds)? {
                found = Some(options);
                break;
            }
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(file, found);
        Ok(found)
    }
}

fn identify(node: &FoundProgram) -> Result<NodeFile, SetupFailure> {
    let found = fstat(node.file.as_fd())
        .map_err(|errno| SetupFailure::from_errno("stat node", errno as i32))?;
    Ok((found.st_dev, found.st_ino, found.st_mtime, found.st_mtime_nsec))
}

/// Runs the program in a sandbox without network.
fn runs_typescript(
    root: &EvaluationRoot,
    node: &str,
    options: &[&str],
    bounds: PhaseBounds,
) -> Result<bool, SetupFailure> {
    let room = DiskSpace { bytes: TRIAL_BYTES_MAX, inodes: TRIAL_INODES_MAX };
    let tree = root.trees.create(room)?;
    let failed = |reason: String| SetupFailure::from_words("write tried.ts", reason);
    let path = RelPath::parse(&format!("{TMP}/{TRIED_NAME}"));
    let path = path.map_err(|error| failed(error.to_string()))?;
    put(tree.root(), &path, TRIED.as_bytes(), tree.owner())
        .map_err(|error| failed(error.to_string()))?;
    let place = WorkspacePath::default();
    let argv = [&[node], options, &[TRIED_PATH]].concat();
    let env = phase_environment(&place);
    let spec = RunSpec {
        argv: c_strings(argv.into_iter().map(str::to_owned))?,
        env: c_strings(env.iter().map(|(name, value)| format!("{name}={value}")))?,
        workdir: PathBuf::from(place.as_path()),
        limits: bounds.limits(TRIAL_TIME),
        ..RunSpec::default()
    };
    let cancel = CancelToken::new();
    let cancel = cancel.map_err(|error| SetupFailure::from_io("eventfd", &error))?;
    let report = tree.run(spec, &place, &Watch::of(cancel), None);
    let report = report.map_err(|error| error.into_failure("exec node"))?;
    match report.outcome {
        Outcome::Exited { code } => Ok(code == 0),
        // It says nothing about node, so it is not remembered.
        other => Err(SetupFailure::from_words("try node", other.word())),
    }
}
