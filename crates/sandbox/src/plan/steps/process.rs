//! The steps that set the groups, namespaces, limits and descriptors of a process.

use std::ffi::CString;

use crate::init::wire;
use crate::plan::encode::{AT_FDCWD, Arg, Encoder, SCRATCH_REGISTER};
use crate::plan::rootfs::lossy;
use crate::plan::scheduler_slice;

const PRIO_PROCESS: i32 = 0;
const IOPRIO_WHO_PROCESS: i32 = 1;
/// Signals are numbered 1 to this.
const SIGNAL_MAX: i64 = 64;

/// A process limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rlimit {
    /// `RLIMIT_CPU`, seconds.
    Cpu,
    /// `RLIMIT_NOFILE`.
    OpenFiles,
    /// `RLIMIT_NPROC`.
    Processes,
    /// `RLIMIT_CORE`, bytes.
    Core,
    /// `RLIMIT_FSIZE`, bytes.
    FileSize,
    /// `RLIMIT_NICE`: how far below 20 a nice value may be brought.
    Nice,
    /// `RLIMIT_RTPRIO`.
    RealtimePriority,
    /// `RLIMIT_RTTIME`, microseconds.
    RealtimeTime,
    /// `RLIMIT_MEMLOCK`, bytes.
    LockedMemory,
    /// `RLIMIT_MSGQUEUE`, bytes.
    MessageQueues,
    /// `RLIMIT_SIGPENDING`, signals and timers.
    PendingSignals,
}

impl Rlimit {
    fn number(self) -> u32 {
        match self {
            Self::Cpu => libc::RLIMIT_CPU,
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::Processes => libc::RLIMIT_NPROC,
            Self::Core => libc::RLIMIT_CORE,
            Self::FileSize => libc::RLIMIT_FSIZE,
            Self::Nice => libc::RLIMIT_NICE,
            Self::RealtimePriority => libc::RLIMIT_RTPRIO,
            Self::RealtimeTime => libc::RLIMIT_RTTIME,
            Self::LockedMemory => libc::RLIMIT_MEMLOCK,
            Self::MessageQueues => libc::RLIMIT_MSGQUEUE,
            Self::PendingSignals => libc::RLIMIT_SIGPENDING,
        }
    }
}

/// A step that sets the groups, namespaces, limits or descriptors of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessStep {
    /// Reset to the ordinary class, nice 0 and no I/O priority, whatever the server has; keep short
    /// slices if the server has them.
    ResetScheduling { short_slices: bool },
    /// Set a longer scheduler slice than the default.
    SetLongSlice,
    /// Move this single-threaded process into the cgroup whose `tasks` file is at `fd`.
    JoinCgroup { fd: i32 },
    /// Create a cgroup namespace rooted at the process's current group.
    UnshareCgroup,
    /// Join the network namespace at `fd`, in which `lo` is up.
    JoinNetwork { fd: i32 },
    /// Bring up `lo`.
    RaiseLoopback,
    /// Set the host name.
    SetHostname { name: CString },
    /// Die with the thread that cloned this process. A change of ids ends that.
    DieWithParent,
    /// Create a session without a controlling terminal.
    NewSession,
    /// Make standard input the controlling terminal of the session.
    TakeTerminal,
    /// Open the sandbox's own null device as standard input.
    OpenNullStdin,
    /// Set the default disposition and an empty mask for every signal.
    ResetSignals,
    /// Let all signals through, whose dispositions are the defaults.
    UnblockSignals,
    /// Set the mode bits that new files never get.
    SetUmask { mask: u32 },
    /// Set a process limit, both soft and hard.
    SetLimit { limit: Rlimit, value: u64 },
    /// Change the working directory.
    EnterDirectory { path: CString },
    /// Close every descriptor from `first` on.
    CloseFrom { first: u32 },
    /// Close `first..=last`.
    CloseRange { first: u32, last: u32 },
    /// Make exec close `first..=last`.
    CloseOnExec { first: u32, last: u32 },
}

impl ProcessStep {
    /// The step's name in an error: the operation and its target.
    pub fn name(&self) -> String {
        match self {
            Self::ResetScheduling { .. } => "scheduling".into(),
            Self::JoinCgroup { .. } => "join cgroup".into(),
            Self::UnshareCgroup => "cgroup namespace".into(),
            Self::JoinNetwork { .. } => "net namespace".into(),
            Self::RaiseLoopback => "raise lo".into(),
            Self::SetHostname { .. } => "set hostname".into(),
            Self::DieWithParent => "die with the service".into(),
            Self::NewSession => "setsid".into(),
            Self::TakeTerminal => "controlling terminal".into(),
            Self::OpenNullStdin => "stdin".into(),
            Self::ResetSignals | Self::UnblockSignals => "reset signals".into(),
            Self::SetUmask { .. } => "umask".into(),
            Self::SetLimit { limit, .. } => format!("rlimit {limit:?}").to_lowercase(),
            Self::EnterDirectory { path: dir } => format!("workdir {}", lossy(dir)),
            Self::CloseFrom { .. } | Self::CloseRange { .. } | Self::CloseOnExec { .. } => {
                "close descriptors".into()
            }
            Self::SetLongSlice => "time slice".into(),
        }
    }

    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::ResetScheduling { short_slices } => {
                reset_scheduling(out);
                if *short_slices {
                    set_slice(out, scheduler_slice::SHORT_NS);
                }
            }
            Self::JoinCgroup { fd } => {
                let zero = out.bytes(b"0");
                out.call(libc::SYS_write, &[fd.into(), zero, 1.into()]);
            }
            Self::UnshareCgroup => out.call(libc::SYS_unshare, &[libc::CLONE_NEWCGROUP.into()]),
            Self::JoinNetwork { fd } => {
                out.call(libc::SYS_setns, &[fd.into(), libc::CLONE_NEWNET.into()]);
            }
            Self::RaiseLoopback => raise_loopback(out),
            Self::SetHostname { name } => {
                let length = name.as_bytes().len();
                let name = out.text(name);
                out.call(libc::SYS_sethostname, &[name, length.into()]);
            }
            Self::DieWithParent => {
                let (option, signal) = (libc::PR_SET_PDEATHSIG.into(), libc::SIGKILL.into());
                out.call(libc::SYS_prctl, &[option, signal, 0.into(), 0.into(), 0.into()]);
            }
            Self::NewSession => out.call(libc::SYS_setsid, &[]),
            Self::TakeTerminal => {
                out.call(libc::SYS_ioctl, &[0.into(), libc::TIOCSCTTY.into(), 0.into()]);
            }
            Self::OpenNullStdin => open_null_stdin(out),
            Self::ResetSignals => reset_signals(out),
            Self::UnblockSignals => unblock_signals(out),
            Self::SetUmask { mask } => out.call(libc::SYS_umask, &[mask.into()]),
            Self::SetLimit { limit, value } => {
                let pair = out.words(&[*value, *value]);
                set_limit(out, *limit, pair);
            }
            Self::EnterDirectory { path } => {
                let path = out.text(path);
                out.call(libc::SYS_chdir, &[path]);
            }
            Self::CloseFrom { first } => close_range(out, *first, u32::MAX, 0),
            Self::CloseRange { first, last } => close_range(out, *first, *last, 0),
            Self::CloseOnExec { first, last } => {
                close_range(out, *first, *last, libc::CLOSE_RANGE_CLOEXEC);
            }
            Self::SetLongSlice => set_slice(out, scheduler_slice::LONG_NS),
        }
    }
}

/// Calls `sched_setattr` with `SCHED_OTHER`, nice 0 and this slice. If the nice value may not be
/// lowered to 0, the slice stays as it is.
fn set_slice(out: &mut Encoder, slice_ns: u64) {
    const ATTR_BYTES: u64 = 48;
    // Size and policy, flags, nice and priority, runtime, deadline, period.
    let attr = out.words(&[ATTR_BYTES, 0, 0, slice_ns, 0, 0]);
    out.call(libc::SYS_sched_setattr, &[0.into(), attr, 0.into()]);
    out.on_error(wire::IGNORE);
}

fn raise_loopback(out: &mut Encoder) {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    out.call_into(
        SCRATCH_REGISTER,
        libc::SYS_socket,
        &[libc::AF_INET.into(), kind.into(), 0.into()],
    );
    // struct ifreq: a name of 16 bytes, then the flags, 40 bytes in all.
    let mut request = [0_u8; 40];
    request[..2].copy_from_slice(b"lo");
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request[16..20].copy_from_slice(&flags.to_ne_bytes());
    let request = out.bytes(&request);
    out.call(
        libc::SYS_ioctl,
        &[Arg::Register(SCRATCH_REGISTER), libc::SIOCSIFFLAGS.into(), request],
    );
}

/// The kernel may refuse the first call if it would raise the priority (from SCHED_IDLE, without
/// CAP_SYS_NICE), and the third too (from a nice value above 0). The second call fails in every
/// real-time class.
fn reset_scheduling(out: &mut Encoder) {
    // struct sched_param: one priority, 0 for the ordinary classes.
    let no_priority = out.words(&[0]);
    out.call(libc::SYS_sched_setscheduler, &[0.into(), libc::SCHED_OTHER.into(), no_priority]);
    out.on_error(wire::IGNORE);
    out.call(libc::SYS_sched_setparam, &[0.into(), no_priority]);
    out.call(libc::SYS_setpriority, &[PRIO_PROCESS.into(), 0.into(), 0.into()]);
    out.on_error(wire::IGNORE);
    out.call(libc::SYS_ioprio_set, &[IOPRIO_WHO_PROCESS.into(), 0.into(), 0.into()]);
}

fn reset_signals(out: &mut Encoder) {
    // SIG_DFL, no flags, no restorer, empty mask: all words zero.
    let default = out.words(&[0; 4]);
    for signal in 1..=SIGNAL_MAX {
        out.call(libc::SYS_rt_sigaction, &[signal.into(), default, 0.into(), 8.into()]);
        // The dispositions of SIGKILL and SIGSTOP cannot be set.
        out.on_error(wire::IGNORE);
    }
    unblock_signals(out);
}

fn unblock_signals(out: &mut Encoder) {
    let none = out.words(&[0]);
    out.call(libc::SYS_rt_sigprocmask, &[libc::SIG_SETMASK.into(), none, 0.into(), 8.into()]);
}

fn close_range(out: &mut Encoder, first: u32, last: u32, flags: u32) {
    out.call(libc::SYS_close_range, &[first.into(), last.into(), flags.into()]);
}

/// `dup3` closes the old standard input; [`ProcessStep::CloseFrom`] closes the new descriptor's
/// first number.
fn open_null_stdin(out: &mut Encoder) {
    let path = out.text(c"/dev/null");
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    out.call_into(SCRATCH_REGISTER, libc::SYS_openat, &[AT_FDCWD.into(), path, flags.into()]);
    out.call(libc::SYS_dup3, &[Arg::Register(SCRATCH_REGISTER), 0.into(), 0.into()]);
}

pub fn set_limit(out: &mut Encoder, limit: Rlimit, pair: Arg) {
    out.call(libc::SYS_prlimit64, &[0.into(), limit.number().into(), pair, 0.into()]);
}
