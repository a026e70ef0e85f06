//! The compiled form of a filter: the kernel's `sock_filter` instructions as plain values.

use super::rules::Action;

/// The most instructions the kernel takes in one filter (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// One classic-BPF instruction, laid out as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The operation: class, size or operator, and operand source.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// The constant operand: a value, an offset, a verdict, or a distance for `JUMP`.
    pub k: u32,
}

/// The operations a filter is made of.
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
    /// The profile it was compiled from.
    pub name: String,
    /// The program, in the order the kernel runs it.
    pub program: Vec<Instruction>,
}

impl Filter {
    /// The program as the kernel's array of `struct sock_filter`, native-endian, 8 bytes each.
    pub fn bytes(&self) -> Vec<u8> {
        self.program.iter().flat_map(Instruction::bytes).collect()
    }

    /// The most instructions that any way through it runs.
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

/// The verdicts a filter returns; the kernel's `SECCOMP_RET_*`.
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;

impl Action {
    /// The value a filter returns for this action.
    pub fn verdict(self) -> u32 {
        match self {
            Self::Allow => ALLOW,
            Self::Errno(errno) => ERRNO | (errno as i32).unsigned_abs(),
            Self::Succeed => ERRNO,
            Self::KillProcess => KILL_PROCESS,
            Self::Notify => USER_NOTIF,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

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
