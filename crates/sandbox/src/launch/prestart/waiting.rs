//! Whether a program waits for its input, as the kernel shows.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// The most threads of one process that are looked at.
const THREADS_MAX: usize = 256;

/// A thread that waits in a read of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingThread {
    process: i32,
    thread: i32,
    /// The inode of the pipe.
    pipe: u64,
}

/// What is known about the threads of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// This one waits.
    Thread(WaitingThread),
    /// None waits now.
    Nobody,
    /// The kernel does not show it: it has no such file, or this process may not read it.
    Unknown,
}

impl Waiting {
    /// Whether the thread still waits, as far as is known.
    pub fn goes_on(self) -> bool {
        match self {
            Self::Thread(thread) => thread.waits(),
            Self::Nobody => false,
            Self::Unknown => true,
        }
    }
}

impl WaitingThread {
    /// Whether it still waits.
    pub fn waits(self) -> bool {
        self.look().unwrap_or(false)
    }

    fn look(self) -> io::Result<bool> {
        let Self { process, thread, pipe } = self;
        let call = fs::read_to_string(directory(process).join(format!("task/{thread}/syscall")))?;
        let Some(fd) = read_from(&call) else { return Ok(false) };
        let target = fs::read_link(directory(process).join(format!("fd/{fd}")))?;
        Ok(target.as_os_str() == format!("pipe:[{pipe}]").as_str())
    }
}

/// Looks for a thread of `processes` that waits in a read of the pipe with the inode `pipe`.
pub fn find(processes: &[i32], pipe: u64) -> Waiting {
    for process in processes {
        for thread in threads(*process) {
            let found = WaitingThread { process: *process, thread, pipe };
            match found.look() {
                Ok(true) => return Waiting::Thread(found),
                Ok(false) => {}
                // It has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) if error.kind() == ErrorKind::NotFound && !is_alive(*process) => {}
                Err(_) => return Waiting::Unknown,
            }
        }
    }
    Waiting::Nobody
}

fn threads(process: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(directory(process).join("task")) else { return Vec::new() };
    let names =
        entries.take(THREADS_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

fn is_alive(process: i32) -> bool {
    directory(process).exists()
}

fn directory(process: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}

/// The descriptor that a thread reads, from its line in `/proc`: the number of the call it waits in,
/// then its arguments. A thread that waits in none is `running`.
fn read_from(call: &str) -> Option<u32> {
    let mut words = call.split_ascii_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let fd = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    matches!(number, libc::SYS_read | libc::SYS_readv).then_some(fd)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_waits_while_it_is_in_a_read_of_that_pipe() {
        let (mut reader, writer) = pipe().unwrap();
        let inode = fs::metadata(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap().ino();
        let own = [i32::try_from(std::process::id()).unwrap()];
        assert!(!matches!(find(&own, inode), Waiting::Thread(_)));
        let waiter = thread::spawn(move || reader.read(&mut [0]).unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        let found = loop {
            match find(&own, inode) {
                Waiting::Thread(found) => break found,
                Waiting::Unknown => return,
                Waiting::Nobody => assert!(Instant::now() < deadline, "nobody waits"),
            }
        };
        assert!(found.waits());
        assert!(!WaitingThread { pipe: inode + 1, ..found }.waits());
        drop(writer);
        assert_eq!(waiter.join().unwrap(), 0);
        assert!(!found.waits());
    }

    #[test]
    fn only_a_read_has_a_descriptor() {
        let read = libc::SYS_read;
        for (line, fd) in [
            (format!("{read} 0x4 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd 0x7f0e"), Some(4)),
            (format!("{} 0x4 0x7ffd 0x1", libc::SYS_readv), Some(4)),
            (format!("{} 0x4 0x0", read + 1), None),
            ("running\n".to_owned(), None),
            ("-1 0x7ffd 0x7f".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(read_from(&line), fd, "{line}");
        }
    }
}
