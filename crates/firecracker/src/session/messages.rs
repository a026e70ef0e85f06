//! The messages of host and guest as JSON, and their conversion to the types of `cofferdam-core`.
//!
//! The host validates everything from a guest: numbers must be in range, words must be known, texts
//! have a length limit.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use cofferdam_core::executor::Capabilities;
use cofferdam_core::{
    CapturedStream, Enforced, LimitKind, Limits, NotStarted, Outcome, RunReport, SetupFailure,
    Timings, Tmpfs, Usage,
};

/// The version of the protocol, which must be the same on both sides.
pub const VERSION: u32 = 1;
/// The most bytes of a text from a guest.
const TEXT_BYTES_MAX: usize = 512;
/// The most texts in a list from a guest.
const TEXTS_MAX: usize = 32;
/// All names of mechanisms in [`Enforced`] and [`Usage`].
const WORDS: [&str; 12] = [
    "pid",
    "mount",
    "ipc",
    "uts",
    "net",
    "cgroup",
    "user",
    "cgroup1",
    "cgroup2",
    "rlimit",
    "cgroup1+rlimit",
    "cgroup2+rlimit",
];
const TMPFS: &str = "tmpfs";
const RUSAGE: &str = "rusage";

/// An invalid value in a guest's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guest reported {0}")]
pub struct InvalidReply(pub &'static str);

/// The guest's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelloMessage {
    /// The guest's [`VERSION`].
    pub version: u32,
    /// The controls that it enforces, or why it cannot run anything.
    pub capabilities: Result<WireCapabilities, String>,
}

/// [`Capabilities`] as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireCapabilities {
    enforced: WireEnforced,
    not_enforced: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireEnforced {
    namespaces: Vec<String>,
    seccomp: Option<String>,
    memory: Option<String>,
    processes: Option<String>,
    disk: Option<String>,
    cpu: Option<String>,
}

/// The run that the guest executes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunMessage {
    /// The program and its arguments in base64, because they need not be text.
    pub argv: Vec<String>,
    /// The file that is executed.
    pub program: WireProgram,
    /// `KEY=VALUE`, in base64.
    pub env: Vec<String>,
    /// The working directory.
    pub workdir: PathBuf,
    /// The number of bytes of standard input that follow; `None` for `/dev/null`.
    pub stdin_bytes: Option<u64>,
    /// The limits.
    pub limits: WireLimits,
    /// Extra private file systems, and their sizes in bytes.
    pub tmpfs: Vec<(PathBuf, Option<u64>)>,
    /// [`cofferdam_core::executor::Room`]: bytes and inodes.
    pub room: (u64, u64),
    /// The size of the workspace's stream, at the start of the drive.
    pub workspace_bytes: u64,
    /// The region of the drive for the result: first byte and length.
    pub result: (u64, u64),
}

/// The file that is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireProgram {
    /// The file that the first argument names.
    Named,
    /// The file at this path, in base64.
    At(String),
    /// The file at this path, if it has this digest.
    Verified {
        /// Absolute, links resolved, in base64.
        path: String,
        /// Its SHA-256.
        sha256: String,
    },
}

/// [`Limits`] as JSON, durations in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireLimits {
    wall_us: u64,
    cpu_seconds_max: u64,
    cpu_total_max_us: Option<u64>,
    memory_bytes_max: u64,
    processes_max: u64,
    cpus_milli_max: Option<u64>,
    disk_bytes_max: u64,
    disk_inodes_max: u64,
    file_bytes_max: u64,
    open_files_max: u64,
    output_bytes_max: Option<u64>,
}

/// Why the guest did not run the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalMessage {
    step: String,
    reason: String,
    errno: Option<i32>,
    /// Whether the sandbox was created and exec failed.
    exec: bool,
}

/// The guest's report of a finished run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportMessage {
    outcome: WireOutcome,
    stdout: WireStream,
    stderr: WireStream,
    usage: WireUsage,
    capabilities: WireCapabilities,
    timings_us: (u64, u64, u64),
    /// Why the result could not be written to the drive.
    pub uncollected: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireOutcome {
    Exited(u8),
    Signaled(i32),
    LimitHit { kind: String, code: Option<u8> },
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStream {
    bytes_total: u64,
    truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireUsage {
    wall_ms: u64,
    cpu_ms: u64,
    memory_peak_bytes: u64,
    memory_peak_source: String,
    processes_peak: Option<u64>,
    #[serde(default)]
    oom_kills: Option<u64>,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

/// Encodes bytes in base64.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 to a string without NUL.
pub fn from_base64(text: &str) -> Result<CString, InvalidReply> {
    let bytes = STANDARD.decode(text).map_err(|_| InvalidReply("a text that is not base64"))?;
    CString::new(bytes).map_err(|_| InvalidReply("a text with a NUL"))
}

/// Encodes each of `words` in base64.
pub fn all_to_base64(words: &[CString]) -> Vec<String> {
    words.iter().map(|word| to_base64(word.to_bytes())).collect()
}

/// Decodes each of `words` from base64.
pub fn all_from_base64(words: &[String]) -> Result<Vec<CString>, InvalidReply> {
    words.iter().map(|word| from_base64(word)).collect()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl From<&Limits> for WireLimits {
    fn from(limits: &Limits) -> Self {
        let Limits {
            wall, cpu_seconds_max, cpu_total_max, memory_bytes_max, processes_max, ..
        } = limits;
        Self {
            wall_us: micros(*wall),
            cpu_seconds_max: *cpu_seconds_max,
            cpu_total_max_us: cpu_total_max.map(micros),
            memory_bytes_max: *memory_bytes_max,
            processes_max: *processes_max,
            cpus_milli_max: limits.cpus_milli_max,
            disk_bytes_max: limits.disk_bytes_max,
            disk_inodes_max: limits.disk_inodes_max,
            file_bytes_max: limits.file_bytes_max,
            open_files_max: limits.open_files_max,
            output_bytes_max: limits.output_bytes_max,
        }
    }
}

impl From<&WireLimits> for Limits {
    fn from(wire: &WireLimits) -> Self {
        Self {
            wall: Duration::from_micros(wire.wall_us),
            cpu_seconds_max: wire.cpu_seconds_max,
            cpu_total_max: wire.cpu_total_max_us.map(Duration::from_micros),
            memory_bytes_max: wire.memory_bytes_max,
            processes_max: wire.processes_max,
            cpus_milli_max: wire.cpus_milli_max,
            disk_bytes_max: wire.disk_bytes_max,
            disk_inodes_max: wire.disk_inodes_max,
            file_bytes_max: wire.file_bytes_max,
            open_files_max: wire.open_files_max,
            output_bytes_max: wire.output_bytes_max,
        }
    }
}

impl RunMessage {
    /// The extra private file systems.
    pub fn tmpfs(&self) -> Vec<Tmpfs> {
        let tmpfs = |(target, bytes_max): &(PathBuf, Option<u64>)| Tmpfs {
            target: target.clone(),
            bytes_max: *bytes_max,
        };
        self.tmpfs.iter().map(tmpfs).collect()
    }
}

impl From<&Capabilities> for WireCapabilities {
    fn from(capabilities: &Capabilities) -> Self {
        Self::of(&capabilities.enforced, &capabilities.not_enforced)
    }
}

impl WireCapabilities {
    fn of(enforced: &Enforced, not_enforced: &[String]) -> Self {
        let owned = |word: Option<&str>| word.map(str::to_owned);
        Self {
            enforced: WireEnforced {
                namespaces: enforced.namespaces.iter().map(|&word| word.to_owned()).collect(),
                seccomp: enforced.seccomp.clone(),
                memory: owned(enforced.memory),
                processes: owned(enforced.processes),
                disk: owned(enforced.disk),
                cpu: owned(enforced.cpu),
            },
            not_enforced: not_enforced.iter().take(TEXTS_MAX).map(|text| shown(text)).collect(),
        }
    }

    /// Converts to [`Capabilities`], if all words are known.
    pub fn checked(self) -> Result<Capabilities, InvalidReply> {
        let WireEnforced { namespaces, seccomp, memory, processes, disk, cpu } = self.enforced;
        if namespaces.len() > TEXTS_MAX || self.not_enforced.len() > TEXTS_MAX {
            return Err(InvalidReply("too many controls"));
        }
        let namespaces = namespaces.iter().map(|name| word(name)).collect::<Result<_, _>>()?;
        let known = |name: Option<String>| name.as_deref().map(word).transpose();
        Ok(Capabilities {
            enforced: Enforced {
                namespaces,
                seccomp: seccomp.map(|name| shown(&name)),
                memory: known(memory)?,
                processes: known(processes)?,
                disk: known(disk)?,
                cpu: known(cpu)?,
            },
            not_enforced: self.not_enforced.iter().map(|text| shown(text)).collect(),
        })
    }
}

fn word(told: &str) -> Result<&'static str, InvalidReply> {
    let words = WORDS.iter().chain([&TMPFS, &RUSAGE]);
    words.copied().find(|word| *word == told).ok_or(InvalidReply("an unknown control"))
}

/// `text` on one line, cut to 512 bytes.
pub fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(TEXT_BYTES_MAX).map(plain).collect();
    while shown.len() > TEXT_BYTES_MAX {
        shown.pop();
    }
    shown
}

impl From<&NotStarted> for RefusalMessage {
    fn from(why: &NotStarted) -> Self {
        match why {
            NotStarted::Setup(SetupFailure { step, reason, errno }) => {
                Self { step: shown(step), reason: shown(reason), errno: *errno, exec: false }
            }
            NotStarted::Exec { errno } => {
                Self { step: String::new(), reason: String::new(), errno: Some(*errno), exec: true }
            }
        }
    }
}

impl From<RefusalMessage> for NotStarted {
    fn from(refused: RefusalMessage) -> Self {
        match refused {
            RefusalMessage { exec: true, errno, .. } => {
                Self::Exec { errno: errno.unwrap_or(libc::EIO) }
            }
            RefusalMessage { step, reason, errno, .. } => Self::Setup(SetupFailure {
                step: format!("guest: {}", shown(&step)),
                reason: shown(&reason),
                errno,
            }),
        }
    }
}

impl ReportMessage {
    /// The message for a finished run.
    pub fn of(report: &RunReport, uncollected: Option<String>) -> Self {
        let stream = |stream: &CapturedStream| WireStream {
            bytes_total: stream.bytes_total,
            truncated: stream.truncated,
        };
        let Timings { prepare, run, cleanup } = report.timings;
        Self {
            outcome: WireOutcome::of(report.outcome),
            stdout: stream(&report.stdout),
            stderr: stream(&report.stderr),
            usage: WireUsage::of(&report.usage),
            capabilities: WireCapabilities::of(&report.enforced, &report.not_enforced),
            timings_us: (micros(prepare), micros(run), micros(cleanup)),
            uncollected: uncollected.map(|text| shown(&text)),
        }
    }

    /// Validates the report. `received` is the number of bytes received on stdout and stderr.
    pub fn checked(
        self,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        received: [u64; 2],
    ) -> Result<RunReport, InvalidReply> {
        let [received_stdout, received_stderr] = received;
        let Capabilities { enforced, not_enforced } = self.capabilities.checked()?;
        let (prepare, run, cleanup) = self.timings_us;
        Ok(RunReport {
            outcome: self.outcome.checked()?,
            stdout: self.stdout.checked(stdout, received_stdout)?,
            stderr: self.stderr.checked(stderr, received_stderr)?,
            usage: self.usage.checked()?,
            enforced,
            not_enforced,
            timings: Timings {
                prepare: Duration::from_micros(prepare),
                run: Duration::from_micros(run),
                cleanup: Duration::from_micros(cleanup),
            },
            standby: false,
        })
    }
}

impl WireStream {
    fn checked(self, bytes: Vec<u8>, received: u64) -> Result<CapturedStream, InvalidReply> {
        let Self { bytes_total, truncated } = self;
        if received > bytes_total || (received < bytes_total && !truncated) {
            return Err(InvalidReply("another amount of output than it sent"));
        }
        Ok(CapturedStream { bytes, bytes_total, truncated })
    }
}

impl WireOutcome {
    fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Exited { code } => Self::Exited(code),
            Outcome::Signaled { signal } => Self::Signaled(signal),
            Outcome::LimitHit { kind, code } => {
                Self::LimitHit { kind: kind.word().to_owned(), code }
            }
            Outcome::Cancelled => Self::Cancelled,
        }
    }

    fn checked(self) -> Result<Outcome, InvalidReply> {
        use LimitKind::{CpuTime, Disk, Memory, Output, Processes, WallTime};
        Ok(match self {
            Self::Exited(code) => Outcome::Exited { code },
            Self::Signaled(signal @ 1..=64) => Outcome::Signaled { signal },
            Self::Signaled(_) => return Err(InvalidReply("an invalid signal")),
            Self::Cancelled => Outcome::Cancelled,
            Self::LimitHit { kind, code } => {
                let kinds = [WallTime, CpuTime, Memory, Processes, Disk, Output];
                let kind = kinds.into_iter().find(|known| known.word() == kind);
                Outcome::LimitHit { kind: kind.ok_or(InvalidReply("an unknown limit"))?, code }
            }
        })
    }
}

impl WireUsage {
    fn of(usage: &Usage) -> Self {
        Self {
            wall_ms: usage.wall_ms,
            cpu_ms: usage.cpu_ms,
            memory_peak_bytes: usage.memory_peak_bytes,
            memory_peak_source: usage.memory_peak_source.to_owned(),
            processes_peak: usage.processes_peak,
            oom_kills: usage.oom_kills,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        }
    }

    fn checked(self) -> Result<Usage, InvalidReply> {
        Ok(Usage {
            wall_ms: self.wall_ms,
            cpu_ms: self.cpu_ms,
            memory_peak_bytes: self.memory_peak_bytes,
            memory_peak_source: word(&self.memory_peak_source)?,
            processes_peak: self.processes_peak,
            oom_kills: self.oom_kills,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
        })
    }
}
