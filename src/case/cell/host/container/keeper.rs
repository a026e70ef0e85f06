//! What removes all that a Cell has, also when the supervisor is killed: a process of ours that waits for the end of
//! its stdin.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::call::{call, wait};
use crate::case::cell::error::ExecError;
use crate::case::cell::host::caches::remove;
use crate::case::cell::host::message::{receive, send};
use cofferdam_core::values::deadline::Deadline;

/// The argument with which our program is a keeper.
const KEEPER_ARGUMENT: &str = "cell-keeper";
/// What it is told once the container of the Cell is kept.
const KEPT: &[u8] = b"k";
/// How long one call of the engine may take.
const CALL_WAIT: Duration = Duration::from_secs(60);
/// How long the keeper may take for all of it.
const KEEPER_WAIT: Duration = Duration::from_secs(300);

/// What is removed in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeeperOrder {
    /// The engine.
    pub(super) program: PathBuf,
    /// Its command lines, in order.
    pub(super) calls: Vec<Vec<String>>,
    /// Those in place of them once the container of the Cell is kept.
    pub(super) calls_if_kept: Vec<Vec<String>>,
    /// The directories of the Cell.
    pub(super) directories: Vec<PathBuf>,
}

/// The keeper of a Cell. Dropped, it removes what it was told to and ends.
#[derive(Debug)]
pub(super) struct CellKeeper(Child);

impl CellKeeper {
    /// Starts one by `helper`, our program.
    pub(super) fn start(helper: &Path, order: &KeeperOrder) -> Result<Self, ExecError> {
        let failed = |error: io::Error| ExecError::failed("start keeper", error);
        let child = Command::new(helper)
            .arg(KEEPER_ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut keeper = Self(child);
        if let Some(stdin) = &mut keeper.0.stdin {
            send(stdin, order).map_err(failed)?;
        }
        Ok(keeper)
    }
}

impl CellKeeper {
    /// Has the container of the Cell kept.
    ///
    /// # Errors
    /// The keeper is gone.
    pub(super) fn keep_container(&mut self) -> Result<(), ExecError> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let told = self.0.stdin.as_mut().ok_or_else(gone).and_then(|stdin| stdin.write_all(KEPT));
        told.map_err(|error| ExecError::failed("keep container", error))
    }
}

impl Drop for CellKeeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        match wait(&mut self.0, Deadline::after(KEEPER_WAIT)) {
            Ok(status) if status.success() => {}
            Ok(status) => log::error!("the keeper of a Cell: {status}"),
            Err(reason) => log::error!("the keeper of a Cell: {reason}"),
        }
    }
}

/// Waits for the end of stdin, then removes what its beginning says.
///
/// # Errors
/// Something is left.
pub fn serve_keeper() -> io::Result<()> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let KeeperOrder { program, calls, calls_if_kept, directories } = receive(&mut input)?;
    let mut is_kept = false;
    while input.read(&mut [0])? > 0 {
        is_kept = true;
    }
    for words in if is_kept { calls_if_kept } else { calls } {
        // It fails where there is nothing to remove.
        let _ = call(&program, &words, Deadline::after(CALL_WAIT), None);
    }
    let removed: Vec<_> = directories.iter().map(|directory| remove(directory)).collect();
    removed.into_iter().collect()
}
