//! Unix stream sockets with deadlines, and with paths of any length.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cofferdam_core::values::deadline::Deadline;

/// Connects to the socket at `path`, which may be longer than a socket address.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // A socket address holds about a hundred bytes.
    let directory = File::open(directory)?;
    let near = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    UnixStream::connect(near)
}

/// Writes all of `bytes` before `deadline`.
pub fn write_by(stream: &mut UnixStream, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads available bytes before `deadline`; returns 0 at the end of the stream.
pub fn read_by(
    stream: &mut UnixStream,
    buffer: &mut [u8],
    deadline: Deadline,
) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(buffer) {
            Err(error) if is_passing(&error) => {}
            read => return read,
        }
    }
}

fn time_left(deadline: Deadline) -> io::Result<Duration> {
    let left = deadline.remaining();
    // A zero time-out would mean no time-out.
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Whether to try again: the deadline decides when to give up.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
