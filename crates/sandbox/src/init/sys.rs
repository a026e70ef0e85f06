//! System calls without a C library, which the init does not have.

use core::arch::asm;

use crate::wire::{PROGRAM_FDS_MAX, RECORD_BYTES, StatusRecord};

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const READ: i64 = 0;
    pub const WRITE: i64 = 1;
    pub const CLOSE: i64 = 3;
    pub const MMAP: i64 = 9;
    pub const MUNMAP: i64 = 11;
    pub const RT_SIGPROCMASK: i64 = 14;
    pub const SENDMSG: i64 = 46;
    pub const RECVMSG: i64 = 47;
    pub const CLONE: i64 = 56;
    pub const WAIT4: i64 = 61;
    pub const FCNTL: i64 = 72;
    pub const CLOCK_GETTIME: i64 = 228;
    pub const EXIT_GROUP: i64 = 231;
    pub const PPOLL: i64 = 271;
    pub const SIGNALFD4: i64 = 289;
    pub const CLONE3: i64 = 435;
    pub const CLOSE_RANGE: i64 = 436;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const FCNTL: i64 = 25;
    pub const CLOSE: i64 = 57;
    pub const READ: i64 = 63;
    pub const WRITE: i64 = 64;
    pub const PPOLL: i64 = 73;
    pub const SIGNALFD4: i64 = 74;
    pub const EXIT_GROUP: i64 = 94;
    pub const CLOCK_GETTIME: i64 = 113;
    pub const RT_SIGPROCMASK: i64 = 135;
    pub const SENDMSG: i64 = 211;
    pub const RECVMSG: i64 = 212;
    pub const MUNMAP: i64 = 215;
    pub const CLONE: i64 = 220;
    pub const MMAP: i64 = 222;
    pub const WAIT4: i64 = 260;
    pub const CLONE3: i64 = 435;
    pub const CLOSE_RANGE: i64 = 436;
}

const SIGCHLD: u64 = 17;
const WALL: u64 = 0x4000_0000;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const CLOCK_MONOTONIC: u64 = 1;
const WNOHANG: u64 = 1;
const F_DUPFD_CLOEXEC: u64 = 1030;
const SIG_BLOCK: u64 = 0;
const SIGNAL_SET_BYTES: u64 = 8;
/// `SFD_CLOEXEC | SFD_NONBLOCK`.
const SIGNAL_FD_FLAGS: u64 = 0o2_000_000 | 0o4_000;
/// A `struct signalfd_siginfo`.
const SIGNAL_BYTES: usize = 128;
const POLLIN: i16 = 1;
const MSG_CTRUNC: u32 = 0x8;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
/// A `struct cmsghdr`.
const CONTROL_HEADER_BYTES: usize = 16;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const FDS_MAX: usize = PROGRAM_FDS_MAX as usize;

/// Makes a system call; `Err` holds the errno.
///
/// # Safety
/// The arguments must be those of call `number`, and every pointer among them valid for it.
pub unsafe fn call(number: i64, args: [u64; 6]) -> Result<u64, i32> {
    let result: i64;
    let [a, b, c, d, e, f] = args;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's x86-64 convention: number in rax, arguments in rdi, rsi, rdx, r10, r8,
    // r9; rcx and r11 are clobbered. The caller vouches for what the call does to memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's arm64 convention: number in x8, arguments in x0 to x5, result in x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    // The kernel's errors are -4095..=-1; everything else is a result.
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result as u64) }
}

/// Maps `bytes` of `fd` at exactly `address`. Writes there are private to this process.
pub fn map_plan(fd: i32, address: u64, bytes: usize) -> Result<(), i32> {
    let (rights, kind) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
    let args = [address, bytes as u64, rights, kind, fd as u64, 0];
    // SAFETY: NOREPLACE refuses an address range that this process already uses.
    unsafe { call(numbers::MMAP, args) }.map(|_| ())
}

/// Forks this process: `Ok(0)` in the child, the child's pid in the parent.
pub fn fork() -> Result<u64, i32> {
    // SAFETY: without shared memory and without a new stack, each process continues on its own copy.
    unsafe { call(numbers::CLONE, [SIGCHLD, 0, 0, 0, 0, 0]) }
}

/// Clones this process as [`fork`] does, and stores a descriptor of the child.
pub fn clone_with_pidfd(pidfd: &mut i32) -> Result<u64, i32> {
    let pidfd = core::ptr::from_mut(pidfd) as u64;
    // SAFETY: as in `fork`; the kernel stores the descriptor in a live local of the caller.
    unsafe { call(numbers::CLONE, [SIGCHLD | CLONE_PIDFD, 0, pidfd, 0, 0, 0]) }
}

/// `struct clone_args` up to `cgroup`.
#[repr(C)]
pub struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

impl CloneArgs {
    /// As a fork, into the group of the directory `group`; a descriptor of the child is stored.
    pub fn into_group(pidfd: &mut i32, group: u32) -> Self {
        Self {
            flags: CLONE_PIDFD | CLONE_INTO_CGROUP,
            pidfd: core::ptr::from_mut(pidfd) as u64,
            child_tid: 0,
            parent_tid: 0,
            exit_signal: SIGCHLD,
            stack: 0,
            stack_size: 0,
            tls: 0,
            set_tid: 0,
            set_tid_size: 0,
            cgroup: group as u64,
        }
    }
}

/// Clones this process.
pub fn clone3(args: &CloneArgs) -> Result<u64, i32> {
    let (args, bytes) = (core::ptr::from_ref(args) as u64, size_of::<CloneArgs>() as u64);
    // SAFETY: as in `fork`; the arguments have the size given, and their one pointer is to a live
    // local of the caller.
    unsafe { call(numbers::CLONE3, [args, bytes, 0, 0, 0, 0]) }
}

/// Reaps a dead child; returns its pid, or 0 if no child is dead, and its wait status.
pub fn reap_any() -> Result<(u64, i32), i32> {
    let mut status: i32 = 0;
    let options = WALL | WNOHANG;
    // SAFETY: `status` is the only pointer, and outlives the call.
    let pid =
        unsafe { call(numbers::WAIT4, [u64::MAX, &raw mut status as u64, options, 0, 0, 0]) }?;
    Ok((pid, status))
}

/// Copies `fd` to the lowest free number from `from` on; exec closes the copy.
pub fn move_up(fd: u64, from: u64) -> Result<u64, i32> {
    // SAFETY: integers only.
    unsafe { call(numbers::FCNTL, [fd, F_DUPFD_CLOEXEC, from, 0, 0, 0]) }
}

/// Closes `fd`.
pub fn close(fd: u64) {
    // SAFETY: integers only; the callers own the descriptor. Close frees the number even if it fails.
    let _ = unsafe { call(numbers::CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

/// Closes `first..=last`.
pub fn close_range(first: u64, last: u64) -> Result<(), i32> {
    // SAFETY: integers only; the callers own these descriptors.
    unsafe { call(numbers::CLOSE_RANGE, [first, last, 0, 0, 0, 0]) }.map(|_| ())
}

/// Unmaps `bytes` at `address`.
pub fn unmap(address: u64, bytes: usize) -> Result<(), i32> {
    // SAFETY: only the plan is there, and nothing refers to it any more.
    unsafe { call(numbers::MUNMAP, [address, bytes as u64, 0, 0, 0, 0]) }.map(|_| ())
}

/// Blocks SIGCHLD, and returns a descriptor that is readable when one has come.
pub fn child_signals() -> Result<u64, i32> {
    let set: u64 = 1 << (SIGCHLD - 1);
    let set = &raw const set as u64;
    // SAFETY: the set outlives both calls and has the size given.
    unsafe {
        call(numbers::RT_SIGPROCMASK, [SIG_BLOCK, set, 0, SIGNAL_SET_BYTES, 0, 0])?;
        call(numbers::SIGNALFD4, [u64::MAX, set, SIGNAL_SET_BYTES, SIGNAL_FD_FLAGS, 0, 0])
    }
}

/// Reads one signal of [`child_signals`]: further ones are merged into one.
pub fn drain(signals: u64) {
    let mut signal = [0_u64; SIGNAL_BYTES / 8];
    let to = signal.as_mut_ptr() as u64;
    // SAFETY: the buffer is a live local of the length given.
    let _ = unsafe { call(numbers::READ, [signals, to, SIGNAL_BYTES as u64, 0, 0, 0]) };
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PollFd {
    fd: i32,
    events: i16,
    happened: i16,
}

impl PollFd {
    /// Waits until `fd` is readable.
    pub fn readable(fd: u64) -> Self {
        Self { fd: fd as i32, events: POLLIN, happened: 0 }
    }

    /// Whether it is, or was closed by the other side.
    pub fn happened(self) -> bool {
        self.happened != 0
    }
}

/// Waits until one of `fds` is ready, without an end.
pub fn poll(fds: &mut [PollFd; 2]) -> Result<(), i32> {
    // SAFETY: the array outlives the call and has the length given; no time and no mask.
    unsafe { call(numbers::PPOLL, [fds.as_mut_ptr() as u64, 2, 0, 0, 0, 0]) }.map(|_| ())
}

/// A `struct msghdr` with what it points to, one piece of data and descriptors.
#[repr(C)]
pub struct ControlMessage {
    data: [u64; 2],
    control: Control,
    header: [u64; 7],
}

/// A `struct cmsghdr` with its descriptors.
#[repr(C)]
struct Control {
    bytes: u64,
    level: i32,
    kind: i32,
    fds: [i32; FDS_MAX],
}

impl ControlMessage {
    /// A message of `bytes` at `data`, which the caller keeps alive.
    pub fn new(data: u64, bytes: usize) -> Self {
        let control = Control { bytes: 0, level: 0, kind: 0, fds: [-1; FDS_MAX] };
        Self { data: [data, bytes as u64], control, header: [0; 7] }
    }

    /// Points the header to the other parts, with so many bytes of control data.
    fn point(&mut self, control_bytes: usize) -> u64 {
        let data = &raw const self.data as u64;
        let control = if control_bytes == 0 { 0 } else { &raw const self.control as u64 };
        // Name and its length, pieces and their count, control data and its length, flags.
        self.header = [0, 0, data, 1, control, control_bytes as u64, 0];
        &raw const self.header as u64
    }

    /// Receives into it without waiting; returns how many bytes came.
    pub fn receive(&mut self, socket: u64) -> Result<u64, i32> {
        let header = self.point(size_of::<Control>());
        // SAFETY: the header points to live memory of the lengths that it names.
        unsafe { call(numbers::RECVMSG, [socket, header, MSG_DONTWAIT, 0, 0, 0]) }
    }

    /// Whether exactly `count` descriptors came, with the numbers from 0 on.
    pub fn came_to_low(&self, count: u32) -> bool {
        let [.., flags] = self.header;
        let wanted = CONTROL_HEADER_BYTES + count as usize * size_of::<i32>();
        let Control { bytes, level, kind, .. } = self.control;
        if flags as u32 & MSG_CTRUNC != 0 || count as usize > FDS_MAX {
            return false;
        }
        let in_place = |(index, fd): (usize, &i32)| *fd == index as i32;
        bytes == wanted as u64
            && (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
            && self.control.fds.iter().take(count as usize).enumerate().all(in_place)
    }

    /// Sends it with that descriptor.
    pub fn send(&mut self, socket: u64, descriptor: Option<i32>) -> Result<(), i32> {
        let mut bytes = 0;
        if let Some(fd) = descriptor {
            bytes = CONTROL_HEADER_BYTES + size_of::<i32>();
            let [first, ..] = &mut self.control.fds;
            *first = fd;
            self.control.bytes = bytes as u64;
            (self.control.level, self.control.kind) = (SOL_SOCKET, SCM_RIGHTS);
        }
        // The length counts the padding.
        let header = self.point(bytes.next_multiple_of(8));
        // SAFETY: the header points to live memory of the lengths that it names.
        unsafe { call(numbers::SENDMSG, [socket, header, MSG_NOSIGNAL, 0, 0, 0]) }.map(|_| ())
    }
}

/// Waits for any child; returns its pid and wait status.
pub fn wait_any() -> Result<(u64, i32), i32> {
    let mut status: i32 = 0;
    // SAFETY: `status` is the only pointer, and outlives the call.
    let pid = unsafe { call(numbers::WAIT4, [u64::MAX, &raw mut status as u64, WALL, 0, 0, 0]) }?;
    Ok((pid, status))
}

/// Writes one record to the supervisor. Fails if the supervisor is gone.
pub fn write_record(fd: i32, kind: u32, step: u32, value: i32) -> Result<(), i32> {
    let record = StatusRecord { kind, step, value, reserved: 0, monotonic_ns: monotonic_ns() };
    let args = [fd as u64, &raw const record as u64, RECORD_BYTES as u64, 0, 0, 0];
    // SAFETY: the record outlives the call and has the length given.
    unsafe { call(numbers::WRITE, args) }.map(|_| ())
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn monotonic_ns() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: `time` has the two words that the call fills.
    let _ = unsafe {
        call(numbers::CLOCK_GETTIME, [CLOCK_MONOTONIC, &raw mut time as u64, 0, 0, 0, 0])
    };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Ends this process, and if it is PID 1 the whole sandbox.
pub fn exit(code: u64) -> ! {
    loop {
        // SAFETY: takes one integer and does not return.
        let _ = unsafe { call(numbers::EXIT_GROUP, [code, 0, 0, 0, 0, 0]) };
    }
}
