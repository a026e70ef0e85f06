//! `cofferdam guest-init`: the first program of a virtual machine. Not for people to run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::boxes::PROFILE;
use super::failure::Failure;
use crate::executor::{Executor, SandboxExecutor};
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_firecracker::{GUEST_PROGRAM, guest};
use cofferdam_sandbox::builtin_profile;
use cofferdam_sandbox::{RootSource, Sandbox, SandboxConfig};

/// For the device that the call goes by to be there.
const CALL_WAIT: Duration = Duration::from_secs(20);
/// Its name, which no list of commands shows.
pub const COMMAND: &str = "guest-init";

/// Serves one run to the host of this machine, then ends the machine.
#[derive(Debug, Args)]
pub struct GuestInit {
    /// The drive that the workspace comes and goes by
    #[arg(long, value_name = "DEVICE", default_value = guest::SCRATCH_DRIVE)]
    drive: PathBuf,
}

impl GuestInit {
    /// Does it; the machine does not outlive this.
    pub fn run(self) -> Result<u8, Failure> {
        if std::process::id() != 1 {
            return Err(Failure::Usage(format!(
                "{COMMAND}: only for the first program of a machine"
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
    Sandbox::open(config).map(SandboxExecutor::new).map_err(|failure| failure.to_string())
}

/// What a kernel starts as its first program has the kernel's own left-over words for arguments.
pub fn as_called(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
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
    fn a_first_program_is_known_by_its_name_and_by_nothing_else() {
        let called = |words: &[&str]| as_called(words.iter().map(OsString::from));
        assert_eq!(called(&["/sbin/cofferdam-guest", "quiet"]), ["/sbin/cofferdam-guest", COMMAND]);
        assert_eq!(called(&["cofferdam", "exec"]), ["cofferdam", "exec"]);
        assert!(called(&[]).is_empty());
    }
}
