//! The steps that restrict a process for good: Landlock rules and seccomp filters.

use std::ffi::CString;

use crate::init::wire;
use crate::landlock;
use crate::plan::encode::{AT_FDCWD, Arg, Encoder, RULES_REGISTER};
use crate::plan::rootfs::lossy_inside;

const SECCOMP_SET_MODE_FILTER: i64 = 1;
const SECCOMP_NEW_LISTENER: i64 = 8;
/// A control message's header and one descriptor, without the padding after it.
const CONTROL_BYTES: u64 = 20;

/// A step that restricts the process for the rest of its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestrictStep {
    /// Create a Landlock ruleset, so far without a rule that allows anything.
    CreateRules { handled: u64, scoped: u64 },
    /// Allow the rights `allowed` at and below `path`. Reopens `fd` for it: `fd` and every descriptor
    /// below it are open.
    AllowBelow { path: CString, allowed: u64, fd: i32 },
    /// Apply the rules to this process and its children.
    RestrictSelf { flags: u32 },
    /// Try at `path` what only the rules refuse, and fail if it is allowed.
    ProveRules { path: CString },
    /// Install a system-call filter.
    InstallFilter { name: String, program: Vec<u8> },
    /// Install a filter that reports lock calls, and send its listener to the supervisor.
    WatchLocks { name: String, program: Vec<u8> },
}

impl RestrictStep {
    /// The step's name in an error: the operation and its target.
    pub fn name(&self) -> String {
        match self {
            Self::CreateRules { .. } => "landlock rules".into(),
            Self::AllowBelow { path: below, .. } => {
                format!("landlock rule {}", lossy_inside(below))
            }
            Self::RestrictSelf { .. } => "landlock".into(),
            Self::ProveRules { .. } => "landlock proof".into(),
            Self::InstallFilter { name, .. } | Self::WatchLocks { name, .. } => {
                format!("seccomp {name}")
            }
        }
    }

    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::CreateRules { handled, scoped } => {
                // struct landlock_ruleset_attr: files, network, scopes. A kernel that knows
                // fewer of them takes the others for nothing while they are zero.
                let rules = out.words(&[*handled, 0, *scoped]);
                out.call_into(
                    RULES_REGISTER,
                    landlock::SYS_CREATE_RULESET,
                    &[rules, 24.into(), 0.into()],
                );
            }
            Self::AllowBelow { path, allowed, fd } => allow_below(out, path, *allowed, *fd),
            Self::RestrictSelf { flags } => {
                let rules = Arg::Register(RULES_REGISTER);
                out.call(landlock::SYS_RESTRICT_SELF, &[rules, flags.into()]);
            }
            Self::ProveRules { path } => prove_rules(out, path),
            Self::InstallFilter { program, .. } => install_filter(out, program),
            Self::WatchLocks { program, .. } => watch_locks(out, program),
        }
    }
}

fn allow_below(out: &mut Encoder, path: &CString, allowed: u64, fd: i32) {
    let path = out.text(path);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // The descriptor's number is part of a structure in memory, which no register can fill, so it
    // must be known in advance. All numbers below it are in use; otherwise the rule would fail.
    out.call(libc::SYS_close, &[fd.into()]);
    out.call(libc::SYS_openat, &[AT_FDCWD.into(), path, flags.into()]);
    // struct landlock_path_beneath_attr, packed.
    let rule = [&allowed.to_ne_bytes()[..], &fd.to_ne_bytes()].concat();
    let rule = out.bytes(&rule);
    let kind = landlock::RULE_PATH_BENEATH.into();
    out.call(landlock::SYS_ADD_RULE, &[Arg::Register(RULES_REGISTER), kind, rule, 0.into()]);
}

/// The kernel checks the rules before the privilege, and they answer with another error. Not a
/// character device numbered 0, which needs no privilege: Linux 6.1 takes it for an ordinary file.
fn prove_rules(out: &mut Encoder, path: &CString) {
    let path = out.text(path);
    let mode = libc::S_IFBLK | 0o600;
    out.call(libc::SYS_mknodat, &[AT_FDCWD.into(), path, mode.into(), 0.into()]);
    out.on_error(wire::MUST_BE_REFUSED);
}

fn install_filter(out: &mut Encoder, program: &[u8]) {
    let program = filter_program(out, program);
    out.call(libc::SYS_seccomp, &[SECCOMP_SET_MODE_FILTER.into(), 0.into(), program]);
}

/// The listener gets the number that the plan's file had, the lowest free one. The message is in
/// memory, which no register can fill, so the number must be known in advance.
fn watch_locks(out: &mut Encoder, program: &[u8]) {
    let program = filter_program(out, program);
    let operation = SECCOMP_SET_MODE_FILTER.into();
    out.call(libc::SYS_seccomp, &[operation, SECCOMP_NEW_LISTENER.into(), program]);
    // struct cmsghdr with one descriptor: length, level and type, then the number.
    let descriptor = [wire::PLAN_FD, 0];
    let control = [
        &CONTROL_BYTES.to_ne_bytes()[..],
        &libc::SOL_SOCKET.to_ne_bytes(),
        &libc::SCM_RIGHTS.to_ne_bytes(),
        &descriptor[0].to_ne_bytes(),
        &descriptor[1].to_ne_bytes(),
    ]
    .concat();
    let (control_bytes, control) = (control.len(), out.bytes(&control));
    // struct iovec with one byte: a stream carries no descriptor without data.
    let data = out.bytes(&[0]);
    let data = out.pointers(&[data, 1.into()]);
    // struct msghdr: no name, one iovec, the control message, no flags.
    let message = out.pointers(&[
        0.into(),
        0.into(),
        data,
        1.into(),
        control,
        control_bytes.into(),
        0.into(),
    ]);
    let flags = libc::MSG_NOSIGNAL;
    out.call(libc::SYS_sendmsg, &[wire::RELEASE_FD.into(), message, flags.into()]);
    out.call(libc::SYS_close, &[wire::PLAN_FD.into()]);
}

/// Stores a `struct sock_fprog`: a count in the first word's low half, then the address.
fn filter_program(out: &mut Encoder, program: &[u8]) -> Arg {
    let instructions = u64::try_from(program.len() / 8).unwrap_or(u64::MAX);
    let address = out.bytes(program);
    out.pointers(&[Arg::Value(instructions), address])
}
