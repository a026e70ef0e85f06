//! The commands that a task installs what it needs with.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat};

use super::deps::{MAKE_VENV, with_variables};
use super::error::{RepositoryError, TAIL_BYTES_MAX, tail_of};
use super::git::c_strings;
use crate::egress::{EGRESS_PORT, EgressGrant, proxy_files};
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::patch::read_beneath;
use crate::evaluation::trees::{PhaseTree, TMP};
use crate::executor::put_home_files;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    ExcessOutput, LimitKind, NotStarted, Outcome, OutputSink, RunReport, RunSpec, SetupFailure,
    Stream, Watch, WorkspacePath,
};
use cofferdam_tree::{StopCheck, remove_tree_until};

const HOME: &str = "home";

/// Gets what commands print, as it comes. It may not block.
pub trait InstallOutput: Send + Sync {
    /// Takes `bytes` that the command `number`, counted from 1, has printed.
    fn take(&self, number: usize, bytes: &[u8]);
}

/// What the commands are run with.
pub struct Install<'a> {
    /// The commands, for `sh -c`.
    pub commands: &'a [String],
    /// Variables besides those of every phase.
    pub env: &'a BTreeMap<String, String>,
    /// Where the repository is seen.
    pub place: &'a WorkspacePath,
    /// What they may reach.
    pub egress: Option<&'a EgressGrant>,
    /// What each sandbox may use.
    pub bounds: PhaseBounds,
    /// Cancels the step.
    pub cancel: &'a CancelToken,
    /// When all of them have to be done.
    pub deadline: Deadline,
    /// Whether the next command runs after one that failed.
    pub goes_on: bool,
    /// Gets what they print.
    pub output: Option<Arc<dyn InstallOutput>>,
}

/// Passes output on and keeps its end.
struct TailKeeper {
    tail: Arc<Mutex<Vec<u8>>>,
    number: usize,
    output: Option<Arc<dyn InstallOutput>>,
}

impl OutputSink for TailKeeper {
    fn take(&mut self, _: Stream, bytes: &[u8]) {
        if let Some(output) = &self.output {
            output.take(self.number, bytes);
        }
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        // Rarely: most of what comes is moved only once.
        if tail.len() > 4 * TAIL_BYTES_MAX {
            let from = tail.len() - TAIL_BYTES_MAX;
            tail.drain(..from);
        }
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn is_only_reader(&self) -> bool {
        true
    }
}

impl Install<'_> {
    /// Makes the virtual environment at `place`, if the root file system has Python. It finds the packages of
    /// `behind` too.
    ///
    /// # Errors
    /// There is no sandbox for it, or no room.
    pub fn make_venv(
        &self,
        tree: &PhaseTree,
        place: &str,
        behind: Option<&str>,
    ) -> Result<(), RepositoryError> {
        let mut argv = vec!["python3", "-I", "-S", "-c", MAKE_VENV, place];
        argv.extend(behind);
        let spec = self.spec(&argv, BTreeMap::new())?;
        match self.run(tree, spec, None) {
            Ok(report) if report.outcome == Outcome::Exited { code: 0 } => Ok(()),
            Ok(report) if report.outcome == Outcome::Cancelled => Err(RepositoryError::Cancelled),
            Ok(report) => {
                let command = format!("python3 -m venv {place}");
                Err(failed(&command, &report, &report.stderr.bytes))
            }
            Err(NotStarted::Exec { errno: libc::ENOENT }) => Ok(()),
            Err(error) => Err(error.into_failure("exec python3").into()),
        }
    }

    /// Runs the commands one after the other. Returns the failure of the first that failed, if the others run in
    /// spite of it.
    ///
    /// # Errors
    /// A command failed or a limit ended it, and the others do not run; or there is no sandbox.
    pub fn run_all(&self, tree: &PhaseTree) -> Result<Option<RepositoryError>, RepositoryError> {
        let mut first_failure = None;
        if let Some(grant) = self.egress {
            put_home_files(tree.root(), tree.owner(), grant.service().as_ref());
        }
        let shell = tree.shell("sh", self.env)?;
        for (index, command) in self.commands.iter().enumerate() {
            let mut env = self.env.clone();
            env.extend(self.egress.iter().flat_map(|grant| grant.environment()));
            let mut spec = self.spec(&[&shell, "-c", command], env)?;
            spec.egress = self.egress.map(EgressGrant::service);
            let tail = Arc::<Mutex<Vec<u8>>>::default();
            let (number, output) = (index + 1, self.output.clone());
            let sink = TailKeeper { tail: Arc::clone(&tail), number, output };
            let report = self.run(tree, spec, Some(Box::new(sink)));
            let report = report.map_err(|error| error.into_failure("exec sh"))?;
            match report.outcome {
                Outcome::Exited { code: 0 } => {}
                Outcome::Cancelled => return Err(RepositoryError::Cancelled),
                _ => {
                    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                    let failure = failed(command, &report, &tail);
                    if !self.goes_on {
                        return Err(failure);
                    }
                    first_failure.get_or_insert(failure);
                    if self.deadline.passed() {
                        break;
                    }
                }
            }
        }
        Ok(first_failure)
    }

    fn spec(
        &self,
        argv: &[&str],
        env: BTreeMap<String, String>,
    ) -> Result<RunSpec, RepositoryError> {
        let all = with_variables(self.place, env);
        Ok(RunSpec {
            argv: c_strings(argv.iter().copied())?,
            env: c_strings(all.iter().map(|(name, value)| format!("{name}={value}")))?,
            workdir: self.place.as_path().to_owned(),
            limits: self.bounds.limits(self.deadline.remaining()),
            excess_output: ExcessOutput::Dropped {
                stdout_bytes_max: 0,
                stderr_bytes_max: u64::try_from(TAIL_BYTES_MAX).unwrap_or(u64::MAX),
            },
            ..RunSpec::default()
        })
    }

    fn run(
        &self,
        tree: &PhaseTree,
        spec: RunSpec,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        tree.run(spec, self.place, &Watch::of(self.cancel.clone()), sink)
    }
}

impl fmt::Debug for Install<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Install").field("commands", &self.commands).finish_non_exhaustive()
    }
}

fn failed(command: &str, report: &RunReport, tail: &[u8]) -> RepositoryError {
    let limit: Option<LimitKind> = report.outcome.limit();
    RepositoryError::InstallFailed {
        command: command.to_owned(),
        exit_code: report.outcome.shell_code(),
        tail: tail_of(tail),
        limit,
    }
}

/// Removes what is in `/tmp`, but HOME, and the files of ours in HOME that name the proxy.
///
/// # Errors
/// Something cannot be removed, or `stop` ended it.
pub fn clear_tmp(tree: &PhaseTree, stop: StopCheck<'_>) -> Result<(), RepositoryError> {
    let tmp = tree.open_directory(TMP)?;
    for name in names_in(tmp.as_fd())? {
        if name != HOME.as_bytes() || !is_directory(tmp.as_fd(), HOME) {
            remove(tmp.as_fd(), &name, stop)?;
        }
    }
    tree.make_directory(&format!("{TMP}/{HOME}"))?;
    let both = [false, true].map(|loopback_allowed| proxy_files(EGRESS_PORT, loopback_allowed));
    for (name, text) in both.iter().flatten() {
        let (below, file) = name.rsplit_once('/').unwrap_or(("", name));
        if let Ok(directory) = tree.open_directory(&format!("{TMP}/{HOME}/{below}"))
            && read_beneath(directory.as_fd(), file.as_bytes(), text.len() as u64)
                .is_some_and(|found| found == text.as_bytes())
        {
            remove(directory.as_fd(), file.as_bytes(), stop)?;
        }
    }
    Ok(())
}

fn names_in(directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, SetupFailure> {
    let list = || -> nix::Result<Vec<Vec<u8>>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut open = nix::dir::Dir::openat(directory, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in open.iter() {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") {
                names.push(name);
            }
        }
        Ok(names)
    };
    list().map_err(|errno| SetupFailure::from_errno("list /tmp", errno as i32))
}

fn is_directory(parent: BorrowedFd<'_>, name: &str) -> bool {
    let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits())
}

fn remove(parent: BorrowedFd<'_>, name: &[u8], stop: StopCheck<'_>) -> Result<(), SetupFailure> {
    let name = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
    match remove_tree_until(parent, name, stop) {
        Ok(removal) if removal.left == 0 => Ok(()),
        Ok(_) => Err(SetupFailure::from_words("clear /tmp", "an entry cannot be removed")),
        Err(error) => Err(SetupFailure::from_words("clear /tmp", error.to_string())),
    }
}
