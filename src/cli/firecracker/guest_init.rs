//! `cofferdam guest-init`: the first program of a virtual machine. Users do not run it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::options::sandbox_options::PROFILE;
use crate::executor::{Executor, SandboxExecutor};
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_firecracker::{GUEST_PROGRAM, guest};
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost};

/// How long to wait for the device of the connection to the host.
const CALL_WAIT: Duration = Duration::from_secs(20);
/// The name of the command, which no list of commands shows.
const COMMAND: &str = "guest-init";

/// Serves one run to the host of this machine, then ends the machine.
#[derive(Debug, Args)]
pub struct GuestInitCommand {
    /// The drive that transfers the workspace
    #[arg(long, value_name = "DEVICE", default_value = guest::SCRATCH_DRIVE)]
    drive: PathBuf,
}

impl GuestInitCommand {
    /// Serves the run; the machine ends with it.
    pub fn run(self) -> Result<u8, Failure> {
        if std::process::id() != 1 {
            return Err(Failure::Usage(format!(
                "{COMMAND}: runs only as the first program of a machine"
            )));
        }
        if let Err(failure) = serve(&self.drive) {
            log::error!("guest: {failure}");
        }
        guest::end().map_err(Failure::Serve).map(|()| 0)
    }
}

fn serve(drive: &Path) -> Result<(), SetupFailure> {
    guest::settle()?;
    let host = guest::call_host(Deadline::after(CALL_WAIT))?;
    let opened = open();
    let executor = match &opened {
        Ok(sandboxed) => Ok(sandboxed as &dyn Executor),
        Err(reason) => Err(reason.as_str()),
    };
    guest::serve(host, executor, drive)
}

fn open() -> Result<SandboxExecutor, String> {
    let profile = builtin_profile(PROFILE).map_err(|error| error.to_string())?;
    let config =
        SandboxConfig { profile, root: RootSource::Host, private: Vec::new(), strict: false };
    SandboxHost::open(config).map(SandboxExecutor::new).map_err(|failure| failure.to_string())
}

/// Replaces the arguments of a guest's first program, which are unused kernel arguments, by the
/// command `guest-init`.
pub fn as_called(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = Path::new(GUEST_PROGRAM).file_name();
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    if called.is_some() && called == name {
        arguments.truncate(1);
        arguments.push(OsStr::new(COMMAND).to_owned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_program_is_recognized_by_its_name_only() {
        let called = |words: &[&str]| as_called(words.iter().map(OsString::from).collect());
        assert_eq!(called(&["/sbin/cofferdam-guest", "quiet"]), ["/sbin/cofferdam-guest", COMMAND]);
        assert_eq!(called(&["cofferdam", "exec"]), ["cofferdam", "exec"]);
        assert!(called(&[]).is_empty());
    }
}
