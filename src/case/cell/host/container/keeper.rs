//! What removes all that a Cell has, also when the supervisor is killed: a process of ours that waits for the end of
//! its stdin.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::call::{call, wait};
use crate::case::cell::error::ExecError;
use crate::case::cell::host::message::{receive, send};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::remove_tree;

/// The argument with which our program is a keeper.
const KEEPER_ARGUMENT: &str = "cell-keeper";
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
    /// The directory of the Cell.
    pub(super) directory: PathBuf,
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
    let KeeperOrder { program, calls, directory } = receive(&mut input)?;
    while input.read(&mut [0])? > 0 {}
    for words in calls {
        // It fails where there is nothing to remove.
        let _ = call(&program, &words, Deadline::after(CALL_WAIT), None);
    }
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    remove(parent, name)
}

fn remove(parent: &Path, name: &OsStr) -> io::Result<()> {
    let removal = remove_tree(File::open(parent)?.as_fd(), name).map_err(io::Error::other)?;
    match removal.left {
        0 => Ok(()),
        left => Err(io::Error::other(format!("{left} entries are left"))),
    }
}
