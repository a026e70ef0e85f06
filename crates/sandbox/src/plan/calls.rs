//! The system calls that each step stands for.

use std::ffi::CString;

use super::encode::{Arg, Encoder};
use super::mount_calls::{
    AT_FDCWD, EMPTY_PATH, MOVE_MOUNT_F_EMPTY_PATH, RECURSIVE, SHOWN_READ_ONLY, attach,
    attributes_of, mask, mount_overlay, mount_proc, open_null_stdin, open_tree, seal_root,
    set_attributes,
};
use super::rootfs::{QUEUES, c_string};
use super::step::{ExecCommand, PROC_REGISTER, RULES_REGISTER, Rlimit, SCRATCH_REGISTER, Step};
use crate::files::layers;
use crate::init::wire;
use crate::landlock;
use crate::plan::scheduler_slice;

const SECCOMP_SET_MODE_FILTER: i64 = 1;
const SECCOMP_NEW_LISTENER: i64 = 8;
/// A control message's header and one descriptor, without the padding after it.
const CONTROL_BYTES: u64 = 20;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// `F_WRLCK` as struct flock holds it.
const F_WRLCK: i16 = 1;
const PRIO_PROCESS: i32 = 0;
const IOPRIO_WHO_PROCESS: i32 = 1;
/// Signals are numbered 1 to this.
const SIGNAL_MAX: i64 = 64;

impl Step {
    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::ResetScheduling { short_slices } => {
                reset_scheduling(out);
                if *short_slices {
                    take_turns(out, scheduler_slice::SHORT_NS);
                }
            }
            Self::JoinCgroup { fd } => {
                let zero = out.bytes(b"0");
                out.call(libc::SYS_write, &[fd.into(), zero, 1.into()]);
            }
            Self::UnshareCgroup => out.call(libc::SYS_unshare, &[libc::CLONE_NEWCGROUP.into()]),
            Self::MakeMountsPrivate => {
                let root = out.text(c"/");
                let change = out.mount_attributes(0, libc::MS_PRIVATE, None);
                out.call(
                    libc::SYS_mount_setattr,
                    &[AT_FDCWD.into(), root, libc::AT_RECURSIVE.into(), change, 32.into()],
                );
            }
            Self::OpenTree { source, below, access, idmap_fd, register, with_mounts } => {
                let depth = if *with_mounts { RECURSIVE } else { 0 };
                open_tree(out, (*below, source), *register, depth);
                let attributes = attributes_of(*access);
                set_attributes(out, Arg::Register(*register), attributes, *idmap_fd, depth);
            }
            Self::AttachRoot { fd, mountpoint } => attach(out, fd.into(), mountpoint),
            Self::EnterRoot { fd, mountpoint } => {
                let (empty, mountpoint) = (out.text(c""), out.text(mountpoint));
                let flags = MOVE_MOUNT_F_EMPTY_PATH.into();
                out.call(
                    libc::SYS_move_mount,
                    &[fd.into(), empty, AT_FDCWD.into(), mountpoint, flags],
                );
                out.call(libc::SYS_fchdir, &[fd.into()]);
            }
            Self::SealRoot { fd, mountpoint } => seal_root(out, *fd, mountpoint),
            Self::AttachTree { register, target } => attach(out, Arg::Register(*register), target),
            Self::AttachProgram { fd, target } => {
                set_attributes(out, fd.into(), SHOWN_READ_ONLY, None, 0);
                attach(out, fd.into(), target);
            }
            Self::MountTmpfs { target, bytes_max, inodes_max, uid, gid } => {
                let options = format!(
                    "mode=0755,size={bytes_max},nr_inodes={inodes_max},uid={uid},gid={gid}\0"
                );
                let (kind, target, options) =
                    (out.text(c"tmpfs"), out.text(target), out.bytes(options.as_bytes()));
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                out.call(libc::SYS_mount, &[kind, target, kind, flags.into(), options]);
            }
            Self::MountOverlay => mount_overlay(out, ".overlay", c"workspace"),
            Self::MountLayer { index, layer } => {
                let (place, fd) = (layers::place(*index), Arg::from(layer.fd));
                set_attributes(out, fd, SHOWN_READ_ONLY, layer.idmap_fd, 0);
                attach(out, fd, &c_string(format!("{place}/lower").as_ref()));
                mount_overlay(out, &place, &layer.target);
            }
            Self::MountProc => mount_proc(out),
            Self::Mask { with, target, may_be_closed } => mask(out, with, target, *may_be_closed),
            Self::JoinNetwork { fd } => {
                out.call(libc::SYS_setns, &[fd.into(), libc::CLONE_NEWNET.into()]);
            }
            Self::RaiseLoopback => raise_loopback(out),
            Self::SetHostname { name } => {
                let length = name.as_bytes().len();
                let name = out.text(name);
                out.call(libc::SYS_sethostname, &[name, length.into()]);
            }
            Self::PivotRoot => {
                // Both names the same: the old root ends up under the new one,
                // where the next call lets go of it. No directory is needed.
                let (here, root) = (out.text(c"."), out.text(c"/"));
                out.call(libc::SYS_pivot_root, &[here, here]);
                out.call(libc::SYS_umount2, &[here, libc::MNT_DETACH.into()]);
                out.call(libc::SYS_chdir, &[root]);
            }
            Self::WaitForKill => out.call(libc::SYS_ppoll, &[]),
            Self::NewSession => out.call(libc::SYS_setsid, &[]),
            Self::OpenNullStdin => open_null_stdin(out),
            Self::ResetSignals => reset_signals(out),
            Self::SetUmask { mask } => out.call(libc::SYS_umask, &[mask.into()]),
            Self::SetLimit { limit, value } => {
                let pair = out.words(&[*value, *value]);
                set_limit(out, *limit, pair);
            }
            Self::DropGroups => out.call(libc::SYS_setgroups, &[0.into(), 0.into()]),
            Self::SetGid { gid } => {
                out.call(libc::SYS_setresgid, &[gid.into(), gid.into(), gid.into()]);
            }
            Self::SetUid { uid } => {
                out.call(libc::SYS_setresuid, &[uid.into(), uid.into(), uid.into()]);
            }
            Self::MakeDumpable => prctl(out, libc::PR_SET_DUMPABLE, 1, 0),
            Self::MakeUndumpable => prctl(out, libc::PR_SET_DUMPABLE, 0, 0),
            Self::UnshareUser => out.call(libc::SYS_unshare, &[libc::CLONE_NEWUSER.into()]),
            Self::WriteProc { file, text } => write_proc(out, file, text),
            Self::DropBoundingSet { last_capability } => {
                for capability in 0..=*last_capability {
                    prctl(out, libc::PR_CAPBSET_DROP, i64::from(capability), 0);
                }
            }
            Self::ClearAmbientSet => {
                prctl(out, libc::PR_CAP_AMBIENT, i64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL), 0);
            }
            Self::ClearCapabilities => {
                let header = out.half_words(&[CAPABILITY_VERSION_3, 0]);
                let sets = out.words(&[0; 3]);
                out.call(libc::SYS_capset, &[header, sets]);
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
            Self::SetLongSlice => take_turns(out, scheduler_slice::LONG_NS),
            Self::NoNewPrivileges => prctl(out, libc::PR_SET_NO_NEW_PRIVS, 1, 0),
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
            Self::MountQueues => {
                let (kind, target) = (out.text(c"mqueue"), out.text(QUEUES));
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                out.call(libc::SYS_mount, &[kind, target, kind, flags.into(), 0.into()]);
            }
            Self::ObeyRules { flags } => {
                let rules = Arg::Register(RULES_REGISTER);
                out.call(landlock::SYS_RESTRICT_SELF, &[rules, flags.into()]);
            }
            Self::ProveRules { path } => prove_rules(out, path),
            Self::InstallFilter { program, .. } => install_filter(out, program),
            Self::WatchLocks { program, .. } => watch_locks(out, program),
            Self::HoldProgram => lock_plan(out, libc::F_SETLK),
            Self::AwaitGuard => lock_plan(out, libc::F_SETLKW),
            Self::ReleaseProgram => out.call(libc::SYS_close, &[wire::PLAN_FD.into()]),
            Self::ReportPrepared => out.report_prepared(),
            Self::AwaitRelease => await_release(out),
            Self::ReportReady => out.report_ready(),
            Self::TryExec(program) => exec(out, program, wire::IGNORE),
            Self::Exec(program) => exec(out, program, wire::TRY_NEXT),
        }
    }
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

/// `sched_setattr` to `SCHED_OTHER` at nice 0, with slices of that length. Where the
/// nice value may not be lowered to 0, the slices stay as they are.
fn take_turns(out: &mut Encoder, slice_ns: u64) {
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

/// The first call may be refused where it would give more than the server has
/// (from SCHED_IDLE, without CAP_SYS_NICE), and so may the third (from a nice
/// value above 0). The second fails in every real-time class.
fn reset_scheduling(out: &mut Encoder) {
    // struct sched_param: one priority, of which ordinary classes have none.
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
        // SIGKILL and SIGSTOP have no disposition to set.
        out.on_error(wire::IGNORE);
    }
    out.call(libc::SYS_rt_sigprocmask, &[libc::SIG_SETMASK.into(), default, 0.into(), 8.into()]);
}

fn write_proc(out: &mut Encoder, file: &CString, text: &CString) {
    let length = text.as_bytes().len();
    let (file, text) = (out.text(file), out.text(text));
    let flags = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    out.call_into(
        SCRATCH_REGISTER,
        libc::SYS_openat,
        &[Arg::Register(PROC_REGISTER), file, flags.into()],
    );
    out.call(libc::SYS_write, &[Arg::Register(SCRATCH_REGISTER), text, length.into()]);
}

fn set_limit(out: &mut Encoder, limit: Rlimit, pair: Arg) {
    out.call(libc::SYS_prlimit64, &[0.into(), limit.number().into(), pair, 0.into()]);
}

/// The words are read to where the call after it looks for them.
fn await_release(out: &mut Encoder) {
    let words = out.words(&[0; wire::RELEASE_WORDS]);
    let bytes = wire::RELEASE_WORDS * size_of::<u64>();
    out.call(libc::SYS_read, &[wire::RELEASE_FD.into(), words, bytes.into()]);
    out.on_error(wire::WHOLE);
    set_limit(out, Rlimit::Cpu, words);
}

/// All of the file, for writing.
fn lock_plan(out: &mut Encoder, command: i32) {
    // struct flock: kind and whence in the first word, then start, length, owner.
    let mut lock = [0_u8; 32];
    lock[..2].copy_from_slice(&F_WRLCK.to_ne_bytes());
    let lock = out.bytes(&lock);
    out.call(libc::SYS_fcntl, &[wire::PLAN_FD.into(), command.into(), lock]);
}

fn prctl(out: &mut Encoder, option: i32, second: i64, third: i64) {
    out.call(libc::SYS_prctl, &[option.into(), second.into(), third.into(), 0.into(), 0.into()]);
}

fn close_range(out: &mut Encoder, first: u32, last: u32, flags: u32) {
    out.call(libc::SYS_close_range, &[first.into(), last.into(), flags.into()]);
}

fn allow_below(out: &mut Encoder, path: &CString, allowed: u64, fd: i32) {
    let path = out.text(path);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // The rule's descriptor lies in memory, which no register reaches: so its number has to be
    // known beforehand. All below it are in use; were one not, the rule would find none.
    out.call(libc::SYS_close, &[fd.into()]);
    out.call(libc::SYS_openat, &[AT_FDCWD.into(), path, flags.into()]);
    // struct landlock_path_beneath_attr, packed.
    let rule = [&allowed.to_ne_bytes()[..], &fd.to_ne_bytes()].concat();
    let rule = out.bytes(&rule);
    let kind = landlock::RULE_PATH_BENEATH.into();
    out.call(landlock::SYS_ADD_RULE, &[Arg::Register(RULES_REGISTER), kind, rule, 0.into()]);
}

/// The rules are asked before the privilege, and answer with another error. Not a character
/// device numbered 0, which needs none: Linux 6.1 takes that for an ordinary file.
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

/// The listener gets the number that the plan's file had, the lowest that is free: the message lies
/// in memory, which no register reaches, so the number has to be known beforehand.
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
    // One byte, without which a stream carries no descriptor: struct iovec.
    let data = out.bytes(&[0]);
    let data = out.pointers(&[data, 1.into()]);
    // struct msghdr: no name, one piece of data, the control message, no flags.
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

/// A `struct sock_fprog`: a count in the first word's low half, then the address.
fn filter_program(out: &mut Encoder, program: &[u8]) -> Arg {
    let instructions = u64::try_from(program.len() / 8).unwrap_or(u64::MAX);
    let address = out.bytes(program);
    out.pointers(&[Arg::Value(instructions), address])
}

fn exec(out: &mut Encoder, program: &ExecCommand, on_error: u16) {
    let argv = out.string_array(&program.argv);
    let env = out.string_array(&program.env);
    if let Some(fd) = program.fd {
        let empty = out.text(c"");
        out.call(libc::SYS_execveat, &[fd.into(), empty, argv, env, EMPTY_PATH.into()]);
        out.on_error(on_error);
    }
    for path in &program.paths {
        let path = out.text(path);
        out.call(libc::SYS_execve, &[path, argv, env]);
        out.on_error(on_error);
    }
}
