//! The processes of a sandbox that lasts, as its programs see them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};

use super::{ProgramLabel, SharedSandbox, SharedState};
use crate::sys;

/// The largest part of the arguments that is told, bytes.
const ARGS_BYTES_MAX: u64 = 4096;
/// The largest file of `/proc` that is read, bytes.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// PID 1, which is no program's.
const INIT_PID: i32 = 1;

/// A process.
#[derive(Debug, Clone)]
pub struct SharedProcess {
    /// Its number in the sandbox.
    pub pid: i32,
    /// Its parent's number in the sandbox.
    pub ppid: i32,
    /// Its arguments, as it shows them: text of the tenant's, at most 4096 bytes.
    pub args: Vec<String>,
    /// When it was started.
    pub started_at: SystemTime,
    /// The CPU time of its threads.
    pub cpu: Duration,
    /// Its resident memory.
    pub memory_bytes: u64,
    /// The program that started it.
    pub label: ProgramLabel,
}

/// What `/proc` tells of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcStatus {
    /// Its number in the sandbox.
    pid: i32,
    /// Its parent's number on this host.
    host_ppid: i32,
}

/// The times of a process, in ticks: used, and from boot to its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcTimes {
    used: u64,
    start: u64,
}

impl SharedSandbox {
    /// All processes of programs, by their numbers.
    pub fn processes(&self) -> Vec<SharedProcess> {
        let listed = self.0.listed();
        let hosts: BTreeMap<i32, i32> =
            listed.iter().map(|process| (process.host_pid, process.status.pid)).collect();
        let (ticks, page_bytes) = sys::proc_units();
        let booted = booted_at();
        let mut processes: Vec<SharedProcess> = listed
            .into_iter()
            .filter_map(|process| {
                let ProcessDirectory { directory, status, label, .. } = process;
                let times = times_of(&read(&directory, c"stat").ok()?)?;
                let pages = read(&directory, c"statm").ok()?;
                let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
                Some(SharedProcess {
                    pid: status.pid,
                    // A parent that has just died: PID 1 has its children now.
                    ppid: hosts.get(&status.host_ppid).copied().unwrap_or(INIT_PID),
                    args: args_of(&directory),
                    started_at: booted + in_ticks(times.start, ticks),
                    cpu: in_ticks(times.used, ticks),
                    memory_bytes: pages.saturating_mul(page_bytes),
                    label,
                })
            })
            .collect();
        processes.sort_by_key(|process| process.pid);
        processes
    }

    /// Sends `signal` to the process `pid`, as it is numbered in the sandbox. False if no program has
    /// such a process.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn signal(&self, pid: i32, signal: i32) -> io::Result<bool> {
        let listed = self.0.listed();
        let Some(found) = listed.into_iter().find(|process| process.status.pid == pid) else {
            return Ok(false);
        };
        let Ok(process) = sys::pidfd_of(found.host_pid) else { return Ok(false) };
        // Its directory tells of it still, so the number was its own when it was opened.
        let is_same = read(&found.directory, c"status")
            .is_ok_and(|text| status_of(&text).is_some_and(|status| status.pid == pid));
        if !is_same {
            return Ok(false);
        }
        match sys::signal_process(process.as_fd(), signal) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A process with its directory of `/proc`, which is always of the same one.
#[derive(Debug)]
struct ProcessDirectory {
    host_pid: i32,
    directory: OwnedFd,
    status: ProcStatus,
    label: ProgramLabel,
}

impl SharedState {
    /// The processes of all programs. PID 1 does not count.
    fn listed(&self) -> Vec<ProcessDirectory> {
        let programs: Vec<_> = self.programs().values().cloned().collect();
        let mut all = Vec::new();
        for entry in programs {
            let listed = entry.group.processes().unwrap_or_default();
            let opened = listed.into_iter().filter_map(|host_pid| {
                let directory = File::open(format!("/proc/{host_pid}")).ok()?;
                Some((host_pid, OwnedFd::from(directory)))
            });
            let opened: Vec<_> = opened.collect();
            // A number that the group lists before and after it was opened is that of a process of the
            // group.
            let again = entry.group.processes().unwrap_or_default();
            for (host_pid, directory) in opened.into_iter().filter(|(pid, _)| again.contains(pid)) {
                let status = read(&directory, c"status").ok();
                if let Some(status) = status.and_then(|text| status_of(&text)) {
                    let label = entry.label.clone();
                    all.push(ProcessDirectory { host_pid, directory, status, label });
                }
            }
        }
        all
    }
}

/// Reads a file of a process.
fn read(directory: &OwnedFd, file: &std::ffi::CStr) -> io::Result<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let opened = File::from(openat(directory, file, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn args_of(directory: &OwnedFd) -> Vec<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut bytes = Vec::new();
    if let Ok(opened) = openat(directory, c"cmdline", flags, Mode::empty()) {
        // What was read before an error is told.
        let _ = File::from(opened).take(ARGS_BYTES_MAX).read_to_end(&mut bytes);
    }
    split_args(&bytes)
}

/// The arguments in the text of `cmdline`, each of which ends in NUL.
fn split_args(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let args = bytes.split(|byte| *byte == 0);
    args.map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

/// The numbers in the text of `status`. The name of a process is a line of its own, in which the kernel
/// escapes line ends.
fn status_of(text: &str) -> Option<ProcStatus> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let pid = value("NSpid:")?.split_ascii_whitespace().last()?.parse().ok()?;
    let host_ppid = value("PPid:")?.trim().parse().ok()?;
    Some(ProcStatus { pid, host_ppid })
}

/// The times in the text of `stat`. The name of a process may hold anything, but nothing after its last
/// bracket is its own.
fn times_of(text: &str) -> Option<ProcTimes> {
    let (_, rest) = text.rsplit_once(')')?;
    // From the state on, which is the third field of all.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcTimes { used: field(14)?.saturating_add(field(15)?), start: field(22)? })
}

fn in_ticks(ticks: u64, in_second: u64) -> Duration {
    let millis = u128::from(ticks) * 1000 / u128::from(in_second.max(1));
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// When this host was started, by its clock.
fn booted_at() -> SystemTime {
    let up = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    SystemTime::now().checked_sub(up).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_stand_for_the_numbers_of_its_process() {
        let status = "Name:\tNSpid:\\t1 99\nUmask:\t0022\nPid:\t700\nPPid:\t650\nNSpid:\t700\t12\n";
        assert_eq!(status_of(status), Some(ProcStatus { pid: 12, host_ppid: 650 }));
        let stat = "700 (a) S 1 2) R 650 700 700 0 -1 4194304 1 0 0 0 30 12 0 0 20 0 1 0 5000 9 9";
        assert_eq!(times_of(stat), Some(ProcTimes { used: 42, start: 5000 }));
        assert_eq!((status_of("Name:\tx\n"), times_of("700 (x")), (None, None));
    }

    #[test]
    fn arguments_are_split_at_nul_and_a_kernel_thread_has_none() {
        let split = |bytes: &[u8]| split_args(bytes);
        assert_eq!(split(b"sh\0-c\0a b\0"), ["sh", "-c", "a b"]);
        assert_eq!(split(b"sh\0\0x\0"), ["sh", "", "x"]);
        assert_eq!(split(b"cut off"), ["cut off"]);
        assert_eq!(split(b"\xff\0"), ["\u{fffd}"]);
        assert!(split(b"").is_empty());
    }
}
