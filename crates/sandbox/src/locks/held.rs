//! Counts the locks that a sandbox holds, in its own `/proc`.
//!
//! A record lock belongs to a descriptor table; the process with the table shows it. A lock of
//! `flock` belongs to an open file description; a process with a descriptor of it shows it. A
//! mapping keeps the description without a descriptor, so files that are mapped very often count
//! too. A message in a socket also keeps descriptions, at most `RLIMIT_NOFILE`; these are not seen.
//!
//! A sandbox can move descriptors between processes during a count. The processes are read in
//! random order, so that a moved descriptor is seen about every second time.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// The most descriptors and processes read in one count.
const ENTRIES_MAX: usize = 8192;
/// The most mappings read in one count.
const MAPPINGS_MAX: usize = 1 << 16;
/// The most bytes read about one descriptor: more than all permitted locks of a sandbox take.
const ENTRY_BYTES_MAX: u64 = 256 << 10;
/// The sandbox's init. Its filter permits no locks.
const INIT: &str = "1";

/// The locks cannot be counted: the sandbox has too many descriptors, or hides them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncountable;

/// The state of one count.
#[derive(Debug, Default)]
struct LockCount {
    entries: usize,
    locks: usize,
    mappings: usize,
    /// How often each file is mapped, by device and inode.
    mapped: HashMap<Vec<u8>, usize>,
}

/// The `/proc` that the thread `thread` sees: that of its sandbox.
pub fn proc_of(thread: u32) -> Option<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let path = format!("/proc/{thread}/root/proc");
    let proc = nix::fcntl::open(path.as_str(), flags, Mode::empty()).ok()?;
    (fstatfs(&proc).ok()?.filesystem_type() == PROC_SUPER_MAGIC).then_some(proc)
}

/// The number of locks; at most twice as many are overlooked. `with_mappings` if `flock` was
/// called.
pub fn count(proc: BorrowedFd<'_>, with_mappings: bool) -> Result<usize, Uncountable> {
    let mut count = LockCount::default();
    let mut processes = numbers(proc, ".", &mut count)?.ok_or(Uncountable)?;
    processes.retain(|process| process != INIT);
    let order = RandomState::new();
    processes.sort_by_cached_key(|process| order.hash_one(process));
    for process in processes {
        count.add_process(proc, &process, with_mappings)?;
    }
    // The segments of a library are mapped several times in every process, without any lock.
    let most_mapped = count.mapped.values().max().copied().unwrap_or(0);
    Ok(count.locks.max(most_mapped / 2))
}

impl LockCount {
    fn add_process(
        &mut self,
        proc: BorrowedFd<'_>,
        process: &str,
        with_mappings: bool,
    ) -> Result<(), Uncountable> {
        let Some(at) = self.add_table(proc, process)? else { return Ok(()) };
        if with_mappings { self.add_mappings(proc, &at) } else { Ok(()) }
    }

    /// Adds the locks of a process. Returns the directory that shows them, if there is one.
    fn add_table(
        &mut self,
        proc: BorrowedFd<'_>,
        process: &str,
    ) -> Result<Option<String>, Uncountable> {
        if self.add_descriptors(proc, process)? {
            return Ok(Some(process.to_owned()));
        }
        // The first thread of a process may have ended before the others; it then shows nothing.
        let threads = numbers(proc, &format!("{process}/task"), self)?.unwrap_or_default();
        let mut others = threads.into_iter().filter(|thread| thread != process).peekable();
        if others.peek().is_none() {
            // It has no descriptor. Its mappings are there, unless it is dead.
            return Ok(Some(process.to_owned()));
        }
        for thread in others {
            let at = format!("{process}/task/{thread}");
            if self.add_descriptors(proc, &at)? {
                return Ok(Some(at));
            }
        }
        Err(Uncountable)
    }

    /// Adds the locks shown below `at`. Returns whether there was any descriptor.
    fn add_descriptors(&mut self, proc: BorrowedFd<'_>, at: &str) -> Result<bool, Uncountable> {
        let directory = format!("{at}/fdinfo");
        let Some(descriptors) = numbers(proc, &directory, self)? else { return Ok(false) };
        for descriptor in &descriptors {
            let path = format!("{directory}/{descriptor}");
            let Some(mut file) = open(proc, &path, OFlag::empty())? else { continue };
            let mut text = Vec::new();
            match file.by_ref().take(ENTRY_BYTES_MAX).read_to_end(&mut text) {
                Ok(_) => self.locks += locks_in(&text),
                Err(error) if is_gone(error.raw_os_error()) => {}
                Err(_) => return Err(Uncountable),
            }
        }
        Ok(!descriptors.is_empty())
    }

    fn add_mappings(&mut self, proc: BorrowedFd<'_>, at: &str) -> Result<(), Uncountable> {
        let Some(maps) = open(proc, &format!("{at}/maps"), OFlag::empty())? else {
            return Ok(());
        };
        for line in BufReader::new(maps).split(b'\n') {
            let line = match line {
                Ok(line) => line,
                Err(error) if is_gone(error.raw_os_error()) => return Ok(()),
                Err(_) => return Err(Uncountable),
            };
            self.mappings += 1;
            if self.mappings > MAPPINGS_MAX {
                return Err(Uncountable);
            }
            if let Some(file) = mapped_file(&line) {
                *self.mapped.entry(file).or_default() += 1;
            }
        }
        Ok(())
    }
}

/// Device and inode in a line of `maps`; `None` if no file is mapped.
fn mapped_file(line: &[u8]) -> Option<Vec<u8>> {
    let mut words = line.split(|byte| *byte == b' ').skip(3);
    let (device, inode) = (words.next()?, words.next()?);
    (inode != b"0").then(|| [device, b" ", inode].concat())
}

/// The number of locks in the `fdinfo` of one descriptor.
fn locks_in(text: &[u8]) -> usize {
    text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"lock:")).count()
}

/// The names in a directory that are numbers; `None` if the directory is gone.
fn numbers(
    proc: BorrowedFd<'_>,
    path: &str,
    count: &mut LockCount,
) -> Result<Option<Vec<String>>, Uncountable> {
    let Some(directory) = open(proc, path, OFlag::O_DIRECTORY)? else { return Ok(None) };
    let mut directory = Dir::from_fd(directory.into()).map_err(|_| Uncountable)?;
    let mut names = Vec::new();
    for entry in directory.iter() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) if is_gone(Some(errno as i32)) => return Ok(None),
            Err(_) => return Err(Uncountable),
        };
        let name = entry.file_name().to_bytes();
        if name.iter().all(u8::is_ascii_digit) {
            count.entries += 1;
            if count.entries > ENTRIES_MAX {
                return Err(Uncountable);
            }
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(Some(names))
}

fn open(proc: BorrowedFd<'_>, path: &str, flags: OFlag) -> Result<Option<File>, Uncountable> {
    let flags = flags | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    match openat(proc.as_fd(), path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(errno) if is_gone(Some(errno as i32)) => Ok(None),
        Err(_) => Err(Uncountable),
    }
}

/// Whether the error means that a process or a descriptor is gone.
fn is_gone(errno: Option<i32>) -> bool {
    [Errno::ENOENT, Errno::ESRCH].iter().any(|gone| errno == Some(*gone as i32))
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};

    use super::*;

    /// The locks of this process alone, in the host's `/proc`.
    fn own(with_mappings: bool) -> usize {
        let proc = File::open("/proc").unwrap();
        let mut count = LockCount::default();
        let process = std::process::id().to_string();
        count.add_process(proc.as_fd(), &process, with_mappings).unwrap();
        assert_eq!(count.mappings > 0, with_mappings);
        count.locks
    }

    #[test]
    fn record_locks_and_flocks_of_a_process_are_seen() {
        let before = own(false);
        let record = tempfile::tempfile().unwrap();
        for byte in 0..5 {
            let lock =
                libc::flock { l_type: 1, l_whence: 0, l_start: 2 * byte, l_len: 1, l_pid: 0 };
            fcntl(&record, FcntlArg::F_SETLK(&lock)).unwrap();
        }
        let whole = Flock::lock(tempfile::tempfile().unwrap(), FlockArg::LockExclusive);
        // Other tests in this process may hold locks too.
        assert!(own(true) >= before.saturating_sub(1) + 6);
        drop(whole);
    }

    #[test]
    fn a_line_of_maps_names_its_file_if_there_is_one() {
        let file = b"7f00-7f01 r--p 00000000 fe:00 12345                      /usr/lib/x y.so";
        assert_eq!(mapped_file(file).unwrap(), b"fe:00 12345");
        let anonymous = b"7f00-7f01 rw-p 00000000 00:00 0                          [heap]";
        assert_eq!(mapped_file(anonymous), None);
        assert_eq!(mapped_file(b""), None);
    }

    #[test]
    fn only_lines_about_locks_are_counted() {
        let text = b"pos:\t0\nflags:\t02\nmnt_id:\t9\nino:\t3\nlock:\t1: POSIX  ADVISORY  READ 7 0:1:2 0 0\nlock:\t2: FLOCK\n";
        assert_eq!(locks_in(text), 2);
        assert_eq!(locks_in(b"pos:\t0\n"), 0);
    }
}
