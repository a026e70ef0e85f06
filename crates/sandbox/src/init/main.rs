//! PID 1 of a sandbox: carries out the plan, starts the program, reaps, reports, ends.
//!
//! A separate program without a C library or an allocator, embedded in the library and executed
//! from memory. This keeps the server's address space out of the sandbox, makes the fork of the
//! program cheap for a server of any size, and leaves no way to allocate, lock or unwind between
//! clone and exec. It decides nothing: `plan::build` in the supervisor writes every system call that
//! it makes.

#![no_std]
#![no_main]

mod serve;
mod sys;
mod wire;

use wire::{Call, CallList, Header};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {run}", "ud2", run = sym run);
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".globl _start", "_start:", "mov x29, #0", "mov x30, #0", "bl {run}", "brk #1", run = sym run);

/// Exit code of an init that could not read its plan.
const EXIT_NO_PLAN: u64 = 120;
/// Exit code of a process whose set-up failed; a record says why.
const EXIT_SETUP_FAILED: u64 = 121;
/// Exit code of a server after a call failed that never does.
const EXIT_SERVE_FAILED: u64 = 122;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ECANCELED: i32 = 125;
const ENOTRECOVERABLE: i32 = 131;

extern "C" fn run() -> ! {
    let header = read_plan();
    let mut registers = [0_u64; wire::REGISTERS];
    walk(header.setup, &mut registers);
    if header.program.calls == 0 {
        walk(header.guard, &mut registers);
        match serve::serve(run_program) {
            serve::ServeEnd::Closed => sys::exit(0),
            serve::ServeEnd::Failed => sys::exit(EXIT_SERVE_FAILED),
        }
    }
    match sys::fork() {
        Ok(0) => {
            walk(header.program, &mut registers);
            // The last call of a program list is exec, which does not return if it succeeds.
            sys::exit(EXIT_SETUP_FAILED)
        }
        Ok(program) => {
            walk(header.guard, &mut registers);
            reap_until(program)
        }
        Err(errno) => fail(u32::MAX, errno),
    }
}

/// Maps the plan, and returns its start.
fn read_plan() -> Header {
    if serve::map_own_plan().is_err() {
        sys::exit(EXIT_NO_PLAN);
    }
    // SAFETY: the supervisor wrote a Header at the start of every plan, and the mapping just made is
    // readable, and is unmapped only by a server, which has walked its lists then.
    let header: Header = unsafe { *(wire::PLAN_ADDRESS as *const Header) };
    if header.magic != wire::PLAN_MAGIC {
        sys::exit(EXIT_NO_PLAN);
    }
    header
}

/// The process of a program that a server has cloned.
fn run_program() -> ! {
    let header = read_plan();
    let mut registers = [0_u64; wire::REGISTERS];
    walk(header.program, &mut registers);
    sys::exit(EXIT_SETUP_FAILED)
}

/// Makes every call of `list` in order, and ends the process on a failure that the plan does not
/// accept.
fn walk(list: CallList, registers: &mut [u64; wire::REGISTERS]) {
    let mut exec_errno = ENOENT;
    for index in 0..list.calls {
        // SAFETY: the supervisor laid out `calls` Calls from `address`, inside the mapped plan.
        let call: Call = unsafe { *(list.address as *const Call).add(index as usize) };
        if let Some(kind) = reported(call.number) {
            if sys::write_record(wire::STATUS_FD, kind, call.step, 0).is_err() {
                // No supervisor is left.
                sys::exit(EXIT_SETUP_FAILED);
            }
            continue;
        }
        // SAFETY: `plan::build` writes only valid calls, whose pointers point into the plan itself.
        let result = unsafe { sys::call(call.number, arguments(&call, registers)) };
        match (result, call.on_error) {
            // The call was allowed; this is the closest errno.
            (Ok(_), wire::MUST_BE_REFUSED) => fail(call.step, ENOTRECOVERABLE),
            (Err(EACCES), wire::MUST_BE_REFUSED) => {}
            // The supervisor, which would resume the program, is gone.
            (Ok(value), wire::WHOLE) if value != call.args[2] => fail(call.step, ECANCELED),
            (Ok(value), _) => {
                if let Some(register) = registers.get_mut(call.store as usize) {
                    *register = value;
                }
            }
            (Err(ENOENT), wire::SKIP_IF_MISSING)
            | (Err(ENOENT | EACCES), wire::SKIP_IF_UNREACHABLE)
            | (Err(_), wire::IGNORE) => {}
            (Err(errno @ (ENOENT | ENOTDIR | EACCES)), wire::TRY_NEXT) => {
                // As execvp: "permission denied" for one path outweighs "not found" for others.
                if errno == EACCES {
                    exec_errno = EACCES;
                }
                if index + 1 == list.calls {
                    fail(call.step, exec_errno);
                }
            }
            (Err(errno), _) => fail(call.step, errno),
        }
    }
}

/// The kind of record that an entry reports, if it is not a system call.
fn reported(number: i64) -> Option<u32> {
    match number {
        wire::REPORT_READY => Some(wire::READY),
        wire::REPORT_PREPARED => Some(wire::PREPARED),
        _ => None,
    }
}

/// The call's arguments with registers filled in. A register that was never set is zero.
fn arguments(call: &Call, registers: &[u64; wire::REGISTERS]) -> [u64; 6] {
    let mut args = call.args;
    for (index, arg) in args.iter_mut().enumerate() {
        if call.registers & (1 << index) != 0 {
            *arg = registers.get(*arg as usize).copied().unwrap_or(0);
        }
    }
    args
}

/// Reaps children until the program ends, then reports its end and ends the sandbox.
fn reap_until(program: u64) -> ! {
    loop {
        match sys::wait_any() {
            Ok((pid, status)) if pid == program => {
                let _ = sys::write_record(wire::STATUS_FD, wire::ENDED, 0, status);
                sys::exit(0);
            }
            Ok(_) => {}
            Err(errno) => fail(u32::MAX, errno),
        }
    }
}

/// Reports a failure and ends this process.
fn fail(step: u32, errno: i32) -> ! {
    let _ = sys::write_record(wire::STATUS_FD, wire::FAILED, step, errno);
    sys::exit(EXIT_SETUP_FAILED)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(EXIT_SETUP_FAILED)
}

// The compiler may call these two functions, which a C library would provide.
#[unsafe(no_mangle)]
extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    for index in 0..bytes {
        // SAFETY: the compiler, which calls it, keeps memcpy's contract.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
    }
    to
}

#[unsafe(no_mangle)]
extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    for index in 0..bytes {
        // SAFETY: the compiler, which calls it, keeps memset's contract.
        unsafe { to.add(index).write_volatile(value as u8) };
    }
    to
}
