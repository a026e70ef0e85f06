//! Compiled filters: the kernel's `sock_filter` instructions as plain values.

use super::rules::Action;

/// The most instructions that the kernel accepts in a filter (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// One classic BPF instruction, with the layout of the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The operation: class, size or operator, and operand source.
    pub code: u16,
    /// The number of instructions to skip if a comparison holds.
    pub jt: u8,
    /// The number of instructions to skip if it does not hold.
    pub jf: u8,
    /// The constant operand: a value, an offset, a verdict, or a distance for `JUMP`.
    pub k: u32,
}

/// The operations that filters use.
pub mod code {
    /// A = the 32-bit word at offset `k` of `seccomp_data`.
    pub const LOAD_WORD: u16 = 0x20;
    /// A = A & `k`.
    pub const AND: u16 = 0x54;
    /// Skip `k` instructions.
    pub const JUMP: u16 = 0x05;
    /// Compare A == `k`.
    pub const JUMP_IF_EQUAL: u16 = 0x15;
    /// Compare A >= `k`, unsigned.
    pub const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
    /// End with verdict `k`.
    pub const RETURN: u16 = 0x06;
}

/// A compiled filter: at most [`INSTRUCTIONS_MAX`] instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The name of the profile.
    pub name: String,
    /// The instructions, in the order in which the kernel runs them.
    pub program: Vec<Instruction>,
}

impl Filter {
    /// The program as an array of `struct sock_filter`: 8 bytes per instruction, native-endian.
    pub fn bytes(&self) -> Vec<u8> {
        self.program.iter().flat_map(Instruction::bytes).collect()
    }

    /// Combines this filter with `next`, which decides the calls that this one allows. The effect is
    /// that of installing both. Returns `None` if the program is too long for the kernel.
    pub fn then(&self, next: &Self) -> Option<Self> {
        let (length, allow) = (self.program.len(), Action::Allow.verdict());
        let mut program = self.program.clone();
        for (index, instruction) in program.iter_mut().enumerate() {
            if (instruction.code, instruction.k) == (code::RETURN, allow) {
                let distance = u32::try_from(length - index - 1).ok()?;
                *instruction = Instruction { code: code::JUMP, jt: 0, jf: 0, k: distance };
            }
        }
        program.extend_from_slice(&next.program);
        let name = format!("{} and {}", self.name, next.name);
        (program.len() <= INSTRUCTIONS_MAX).then_some(Self { name, program })
    }

    /// The number of instructions on the longest path.
    #[cfg(test)]
    pub fn depth(&self) -> usize {
        let mut depths = vec![0; self.program.len()];
        for (index, instruction) in self.program.iter().enumerate().rev() {
            let at = |skip: usize| depths[index + 1 + skip];
            depths[index] = 1 + match instruction.code {
                code::RETURN => 0,
                code::JUMP => at(instruction.k as usize),
                code::LOAD_WORD | code::AND => at(0),
                _ => at(instruction.jt.into()).max(at(instruction.jf.into())),
            };
        }
        depths[0]
    }
}

impl Instruction {
    fn bytes(&self) -> [u8; 8] {
        let [code_0, code_1] = self.code.to_ne_bytes();
        let [k_0, k_1, k_2, k_3] = self.k.to_ne_bytes();
        [code_0, code_1, self.jt, self.jf, k_0, k_1, k_2, k_3]
    }
}

/// The low and the high 32 bits of a register.
pub(super) fn halves(whole: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = whole.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::interpret::{SeccompData, decide};

    #[test]
    fn the_bytes_are_the_kernels_sock_filter() {
        assert_eq!(size_of::<Instruction>(), size_of::<libc::sock_filter>());
        let program =
            vec![Instruction { code: code::JUMP_IF_EQUAL, jt: 1, jf: 2, k: 0x0102_0304 }; 2];
        let bytes = Filter { name: "two".into(), program }.bytes();
        let one: [u8; 8] = if cfg!(target_endian = "little") {
            [0x15, 0, 1, 2, 4, 3, 2, 1]
        } else {
            [0, 0x15, 1, 2, 1, 2, 3, 4]
        };
        assert_eq!(bytes, [one, one].concat());
    }

    #[test]
    fn two_filters_in_one_are_as_strict_as_both() {
        let number = |k, yes, no| {
            let last = |action: Action| (code::RETURN, 0, 0, action.verdict());
            let program =
                [(code::LOAD_WORD, 0, 0, 0), (code::JUMP_IF_EQUAL, 0, 1, k), last(yes), last(no)];
            let program = program.map(|(code, jt, jf, k)| Instruction { code, jt, jf, k });
            Filter { name: k.to_string(), program: program.to_vec() }
        };
        let refused = Action::Errno(Errno::EPERM);
        let first = number(1, refused, Action::Allow);
        let second = number(2, Action::Notify, Action::Allow);
        let both = first.then(&second).unwrap();
        assert_eq!(both.name, "1 and 2");
        for (number, want) in [(1, refused), (2, Action::Notify), (3, Action::Allow)] {
            let data = SeccompData { number, ..SeccompData::default() };
            assert_eq!(decide(&both, &data), Ok(want), "{number}");
        }
        let mut longest = second.clone();
        longest.program.resize(INSTRUCTIONS_MAX - 4, longest.program[3]);
        assert!(longest.then(&first).is_some());
        longest.program.push(longest.program[3]);
        assert_eq!(longest.then(&first), None);
    }

    #[test]
    fn verdicts_are_the_kernels() {
        for (action, verdict) in [
            (Action::Allow, libc::SECCOMP_RET_ALLOW),
            (Action::Errno(Errno::ENOSYS), libc::SECCOMP_RET_ERRNO | 38),
            (Action::Succeed, libc::SECCOMP_RET_ERRNO),
            (Action::KillProcess, libc::SECCOMP_RET_KILL_PROCESS),
            (Action::Notify, libc::SECCOMP_RET_USER_NOTIF),
        ] {
            assert_eq!(action.verdict(), verdict);
        }
    }
}
