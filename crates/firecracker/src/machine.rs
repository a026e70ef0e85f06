//! A virtual machine as this backend needs one.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;

/// The port of the host that a guest calls.
pub const HOST_PORT: u32 = 4041;
/// How a hypervisor's socket is called that leads into a guest; where that calls from inside, it
/// is led to one with the port behind the name.
pub const VSOCK: &str = "v.sock";

/// What a machine is to be.
#[derive(Debug)]
pub struct MachinePlan<'a> {
    /// What tells it from every other on this host: letters, digits and hyphens.
    pub id: &'a str,
    /// A directory of its own, for its sockets; removed when it is over.
    pub directory: &'a Path,
    /// Its second drive, writable; in that directory.
    pub scratch: PathBuf,
    /// Virtual processors.
    pub vcpus: u8,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// When it has to be up.
    pub boot: Deadline,
}

/// Makes machines.
pub trait Hypervisor: Send + Sync + fmt::Debug {
    /// Starts one.
    ///
    /// # Errors
    /// The step that failed; nothing of it is left then.
    fn boot(&self, plan: &MachinePlan<'_>) -> Result<Box<dyn Machine>, SetupFailure>;
}

/// One that was started. Dropping it kills it.
pub trait Machine: Send {
    /// Where its guest's call comes in. It was there before the machine was started, so nobody has
    /// to try again and again.
    fn calls(&self) -> &UnixListener;

    /// What came of it, where it is over.
    fn is_over(&mut self) -> Option<String>;

    /// Gives it this long to end by itself, then kills it. It is dead after that.
    ///
    /// # Errors
    /// It would not die: nothing that it can write to may be read.
    fn end(&mut self, by_itself: Duration) -> Result<(), SetupFailure>;
}

/// Listens for the call of the machine whose [`VSOCK`] is in `directory`, however long its path.
pub fn listen(directory: &Path) -> io::Result<UnixListener> {
    // An address has no room for more than a hundred bytes.
    let open = File::open(directory)?;
    let near = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
    UnixListener::bind(near.join(call_name()))
}

/// The name of the socket that a call comes in by.
pub fn call_name() -> String {
    format!("{VSOCK}_{HOST_PORT}")
}
