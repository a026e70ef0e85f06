//! Runs a filter over one system call, as the kernel would, without the kernel.

use nix::errno::Errno;
use nix::libc;

use super::filter::{Filter, Instruction, code, halves};
use super::rules::Action;
use super::syscalls::Arch;

/// Comparisons that other compilers make and ours does not: A > `k`, and A & `k` != 0.
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_ANY_BIT: u16 = 0x45;

/// What the kernel shows a filter of a call: `struct seccomp_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeccompData {
    /// The number of the call.
    pub number: u32,
    /// The ABI it was made through, an `AUDIT_ARCH_*` value.
    pub arch: u32,
    /// Where it was made from.
    pub instruction_pointer: u64,
    /// Its arguments, whole registers.
    pub args: [u64; 6],
}

/// Why a program is not one the kernel would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFilter {
    /// An operation no filter of ours has.
    #[error("unknown operation {0:#x}")]
    Operation(u16),
    /// A load that is not one whole word of `seccomp_data`.
    #[error("load at offset {0}")]
    Offset(u32),
    /// It runs or jumps past its last instruction.
    #[error("no instruction after the last one")]
    End,
    /// It ends with a verdict that is no [`Action`].
    #[error("unknown verdict {0:#x}")]
    Verdict(u32),
}

/// Whether `filter` lets through every one of our own calls with these numbers, its arguments
/// all zero.
pub fn lets_through(filter: &Filter, numbers: &[i64]) -> bool {
    numbers.iter().all(|number| {
        let number = u32::try_from(*number).unwrap_or(u32::MAX);
        let data = SeccompData { number, arch: Arch::NATIVE.audit(), ..SeccompData::default() };
        decide(filter, &data) == Ok(Action::Allow)
    })
}

/// What `filter` does with the call `data`.
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

/// The action behind a verdict, if it is one of ours; by libc's numbers, so that
/// the compiler's own are held to them.
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

/// Jumps are forwards only, so every program ends.
fn skip(rest: &mut std::slice::Iter<'_, Instruction>, count: usize) {
    if let Some(last) = count.checked_sub(1) {
        rest.nth(last);
    }
}

impl SeccompData {
    /// The 32-bit word at `offset` bytes, low halves first as on every architecture of ours.
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
    fn words_are_where_the_kernel_puts_them() {
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
    fn a_program_the_kernel_would_not_take_is_named_as_such() {
        assert_eq!(run(&[]), Err(MalformedFilter::End));
        assert_eq!(run(&[(code::JUMP, 0, 0, 9)]), Err(MalformedFilter::End));
        assert_eq!(run(&[(0xffff, 0, 0, 0)]), Err(MalformedFilter::Operation(0xffff)));
        assert_eq!(run(&[(code::RETURN, 0, 0, 1)]), Err(MalformedFilter::Verdict(1)));
        let trace = libc::SECCOMP_RET_TRACE;
        assert_eq!(run(&[(code::RETURN, 0, 0, trace)]), Err(MalformedFilter::Verdict(trace)));
    }
}
