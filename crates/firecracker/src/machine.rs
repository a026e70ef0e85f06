//! The traits of hypervisors and virtual machines.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;

/// The vsock port of the host that guests connect to.
pub const HOST_PORT: u32 = 4041;
/// The file name of a machine's vsock socket. A connection from the guest arrives at the socket
/// whose name is this one with `_` and the port appended.
pub const VSOCK: &str = "v.sock";

/// The configuration of a machine.
#[derive(Debug)]
pub struct MachinePlan<'a> {
    /// Its id, unique on this host: letters, digits and hyphens.
    pub id: &'a str,
    /// Its private directory, for its sockets. It is removed after the machine has ended.
    pub directory: &'a Path,
    /// The file of its second drive, writable, in that directory.
    pub scratch: PathBuf,
    /// Virtual processors.
    pub vcpus: u8,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// The deadline for booting.
    pub boot: Deadline,
}

/// Starts machines.
pub trait Hypervisor: Send + Sync + fmt::Debug {
    /// Starts a machine.
    ///
    /// # Errors
    /// The step that failed. Nothing of the machine remains then.
    fn boot(&self, plan: &MachinePlan<'_>) -> Result<Box<dyn Machine>, SetupFailure>;
}

/// A started machine. Dropping it kills it.
pub trait Machine: Send {
    /// The listener for the guest's connection. It exists before the machine starts, so the guest need
    /// not retry.
    fn calls(&self) -> &UnixListener;

    /// How the machine ended, if it has.
    fn is_over(&mut self) -> Option<String>;

    /// Waits this long for the machine to end by itself, then kills it. It is dead afterwards.
    ///
    /// # Errors
    /// The machine did not die. Nothing that it can write to may be read then.
    fn end(&mut self, by_itself: Duration) -> Result<(), SetupFailure>;
}

/// Listens for the connection of the guest whose [`VSOCK`] is in `directory`, which may be longer
/// than a socket address.
pub fn listen(directory: &Path) -> io::Result<UnixListener> {
    // A socket address holds about a hundred bytes.
    let open = File::open(directory)?;
    let near = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
    UnixListener::bind(near.join(call_name()))
}

/// The file name of the socket at which the guest's connection arrives.
pub fn call_name() -> String {
    format!("{VSOCK}_{HOST_PORT}")
}
