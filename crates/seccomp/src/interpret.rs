//! Runs a filter on one system call as the kernel does, without the kernel.

use nix::errno::Errno;
use nix::libc;

use super::filter::{Filter, Instruction, code, halves};
use super::rules::Action;
use super::syscalls::Arch;

/// Comparisons that other compilers emit and this one does not: A > `k`, and A & `k` != 0.
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_ANY_BIT: u16 = 0x45;

/// The description of a call that the kernel passes to a filter: `struct seccomp_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeccompData {
    /// The call number.
    pub number: u32,
    /// The ABI of the call, an `AUDIT_ARCH_*` value.
    pub arch: u32,
    /// The address of the calling instruction.
    pub instruction_pointer: u64,
    /// The arguments, as 64-bit registers.
    pub args: [u64; 6],
}

/// Why the kernel would refuse a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFilter {
    /// An operation that the interpreter does not know.
    #[error("unknown operation {0:#x}")]
    Operation(u16),
    /// A load outside `seccomp_data` or not aligned to 4 bytes.
    #[error("load at offset {0}")]
    Offset(u32),
    /// The program runs or jumps past its last instruction.
    #[error("no instruction after the last one")]
    End,
    /// The program returns a verdict that is not an [`Action`].
    #[error("unknown verdict {0:#x}")]
    Verdict(u32),
}

/// Whether `filter` allows all native calls with these numbers, with all arguments zero.
pub fn lets_through(filter: &Filter, numbers: &[i64]) -> bool {
    numbers.iter().all(|number| {
        let number = u32::try_from(*number).unwrap_or(u32::MAX);
        let data = SeccompData { number, arch: Arch::NATIVE.audit(), ..SeccompData::default() };
        decide(filter, &data) == Ok(Action::Allow)
    })
}

/// Returns the action of `filter` for the call `data`.
///
/// # Errors
/// The program is malformed on the path that this call takes.
pub fn decide(filter: &Filter, data: &SeccompData) -> Result<Action, MalformedFilter> {
    let mut rest = filter.program.iter();
    let mut word = 0;
    loop {
        let Instruction { code, jt, jf, k } = *rest.next().ok_or(MalformedFilter::End)?;
        let holds = match code {
            code::LOAD_WORD => {
                word = data.word(k).ok_or(MalformedFilter::Offset(k))?;
                continue;
            }
            code::AND => {
                word &= k;
                continue;
            }
            code::JUMP => {
                skip(&mut rest, usize::try_from(k).map_err(|_| MalformedFilter::End)?);
                continue;
            }
            code::RETURN => return action_of(k).ok_or(MalformedFilter::Verdict(k)),
            code::JUMP_IF_EQUAL => word == k,
            JUMP_IF_GREATER => word > k,
            code::JUMP_IF_GREATER_OR_EQUAL => word >= k,
            JUMP_IF_ANY_BIT => word & k != 0,
            other => return Err(MalformedFilter::Operation(other)),
        };
        skip(&mut rest, usize::from(if holds { jt } else { jf }));
    }
}

/// The action of a verdict; `None` if there is no such action. It uses libc's numbers, so tests
/// compare the compiler's own numbers with them.
fn action_of(verdict: u32) -> Option<Action> {
    let data = verdict & libc::SECCOMP_RET_DATA;
    match verdict & !libc::SECCOMP_RET_DATA {
        libc::SECCOMP_RET_ERRNO if data == 0 => Some(Action::Succeed),
        libc::SECCOMP_RET_ERRNO => Some(Action::Errno(Errno::from_raw(data.cast_signed()))),
        libc::SECCOMP_RET_ALLOW if data == 0 => Some(Action::Allow),
        libc::SECCOMP_RET_KILL_PROCESS if data == 0 => Some(Action::KillProcess),
        libc::SECCOMP_RET_USER_NOTIF if data == 0 => Some(Action::Notify),
        _ => None,
    }
}

/// Skips `count` instructions. All jumps go forwards, so every program ends.
fn skip(rest: &mut std::slice::Iter<'_, Instruction>, count: usize) {
    if let Some(last) = count.checked_sub(1) {
        rest.nth(last);
    }
}

impl SeccompData {
    /// The 32-bit word at `offset` bytes. Low halves come first: all supported architectures are
    /// little-endian.
    fn word(&self, offset: u32) -> Option<u32> {
        let word = match offset {
            0 => self.number,
            4 => self.arch,
            8..64 if offset.is_multiple_of(4) => {
                let index = usize::try_from(offset / 8 - 1).ok()?;
                let whole = match index.checked_sub(1) {
                    None => self.instruction_pointer,
                    Some(arg) => *self.args.get(arg)?,
                };
                let [low, high] = halves(whole);
                if offset.is_multiple_of(8) { low } else { high }
            }
            _ => return None,
        };
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &[(u16, u8, u8, u32)]) -> Result<Action, MalformedFilter> {
        let program =
            program.iter().map(|&(code, jt, jf, k)| Instruction { code, jt, jf, k }).collect();
        let data = SeccompData {
            number: 7,
            arch: 8,
            instruction_pointer: 0x1_0000_0002,
            args: [0x3_0000_0004, 0, 0, 0, 0, 0x5_0000_0006],
        };
        decide(&Filter { name: "sample".into(), program }, &data)
    }

    #[test]
    fn words_are_at_the_kernels_offsets() {
        for (offset, want) in
            [(0, 7), (4, 8), (8, 2), (12, 1), (16, 4), (20, 3), (24, 0), (56, 6), (60, 5)]
        {
            let program = [
                (code::LOAD_WORD, 0, 0, offset),
                (code::JUMP_IF_EQUAL, 1, 0, want),
                (code::RETURN, 0, 0, Action::KillProcess.verdict()),
                (code::RETURN, 0, 0, Action::Allow.verdict()),
            ];
            assert_eq!(run(&program), Ok(Action::Allow), "offset {offset}");
        }
        for offset in [1, 2, 10, 64, 68, u32::MAX] {
            let program = [(code::LOAD_WORD, 0, 0, offset)];
            assert_eq!(run(&program), Err(MalformedFilter::Offset(offset)));
        }
    }

    #[test]
    fn comparisons_and_jumps_are_the_kernels() {
        let table = [
            (code::JUMP_IF_EQUAL, 7, true),
            (code::JUMP_IF_EQUAL, 8, false),
            (JUMP_IF_GREATER, 6, true),
            (JUMP_IF_GREATER, 7, false),
            (code::JUMP_IF_GREATER_OR_EQUAL, 7, true),
            (code::JUMP_IF_GREATER_OR_EQUAL, 8, false),
            (JUMP_IF_ANY_BIT, 9, true),
            (JUMP_IF_ANY_BIT, 8, false),
        ];
        for (comparison, k, holds) in table {
            let program = [
                (code::LOAD_WORD, 0, 0, 0),
                (comparison, 1, 0, k),
                (code::JUMP, 0, 0, 1),
                (code::RETURN, 0, 0, Action::Allow.verdict()),
                (code::RETURN, 0, 0, Action::KillProcess.verdict()),
            ];
            let want = if holds { Action::Allow } else { Action::KillProcess };
            assert_eq!(run(&program), Ok(want), "{comparison:#x} {k}");
        }
    }

    #[test]
    fn a_malformed_program_is_refused() {
        assert_eq!(run(&[]), Err(MalformedFilter::End));
        assert_eq!(run(&[(code::JUMP, 0, 0, 9)]), Err(MalformedFilter::End));
        assert_eq!(run(&[(0xffff, 0, 0, 0)]), Err(MalformedFilter::Operation(0xffff)));
        assert_eq!(run(&[(code::RETURN, 0, 0, 1)]), Err(MalformedFilter::Verdict(1)));
        let trace = libc::SECCOMP_RET_TRACE;
        assert_eq!(run(&[(code::RETURN, 0, 0, trace)]), Err(MalformedFilter::Verdict(trace)));
    }
}
