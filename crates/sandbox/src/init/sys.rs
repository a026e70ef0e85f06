//! System calls without a C library, which the init does not have.

use core::arch::asm;

use crate::wire::{RECORD_BYTES, StatusRecord};

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const WRITE: i64 = 1;
    pub const MMAP: i64 = 9;
    pub const CLONE: i64 = 56;
    pub const WAIT4: i64 = 61;
    pub const CLOCK_GETTIME: i64 = 228;
    pub const EXIT_GROUP: i64 = 231;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const WRITE: i64 = 64;
    pub const EXIT_GROUP: i64 = 94;
    pub const CLOCK_GETTIME: i64 = 113;
    pub const CLONE: i64 = 220;
    pub const MMAP: i64 = 222;
    pub const WAIT4: i64 = 260;
}

const SIGCHLD: u64 = 17;
const WALL: u64 = 0x4000_0000;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const CLOCK_MONOTONIC: u64 = 1;

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
