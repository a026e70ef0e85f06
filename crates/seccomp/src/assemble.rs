//! Builds a BPF program from its end to its start.
//!
//! BPF jumps only forwards, so in this direction the distance to every target is known when the
//! jump is added.

use super::filter::{INSTRUCTIONS_MAX, Instruction, code};
use super::rules::Action;

/// The longest jump of a comparison, in instructions.
const REACH_MAX: usize = 255;

/// Why a policy has no program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The kernel takes at most [`INSTRUCTIONS_MAX`].
    #[error("the filter has {instructions} instructions, more than the kernel takes")]
    TooLong {
        /// The number of instructions.
        instructions: usize,
    },
    /// A comparison is too far from its target.
    #[error("a jump of {instructions} instructions is out of reach")]
    OutOfReach {
        /// The distance, in instructions.
        instructions: usize,
    },
}

/// An instruction of the program under construction, counted from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The program, last instruction first.
    reversed: Vec<PendingInstruction>,
    /// For each verdict, its `RETURN` nearest to the start.
    returns: Vec<(u32, Label)>,
    /// The number of instructions beyond the kernel's limit, which are not stored.
    surplus: usize,
}

/// An instruction whose jump distances are not yet checked.
#[derive(Debug, Clone, Copy)]
struct PendingInstruction {
    code: u16,
    jt: usize,
    jf: usize,
    k: u32,
}

impl Assembler {
    /// Adds a return with `action`, or reuses one that is near enough.
    pub(super) fn verdict(&mut self, action: Action) -> Label {
        let verdict = action.verdict();
        match self.returns.iter().find(|(known, _)| *known == verdict) {
            Some((_, place)) => *place,
            None => self.put_return(verdict),
        }
    }

    /// Loads the word at `offset` of `seccomp_data`, then continues at `next`.
    pub(super) fn load(&mut self, offset: u32, next: Label) -> Label {
        self.put_before(code::LOAD_WORD, offset, next)
    }

    /// Applies `mask` to the loaded word, then continues at `next`.
    pub(super) fn and(&mut self, mask: u32, next: Label) -> Label {
        if mask == u32::MAX { next } else { self.put_before(code::AND, mask, next) }
    }

    /// Compares the loaded word with `k`, then continues at `yes` if it holds, else at `no`.
    pub(super) fn branch(&mut self, comparison: u16, k: u32, yes: Label, no: Label) -> Label {
        // `bring_near(no)` may add an instruction between the branch and `yes`.
        let yes = self.bring_near(yes, REACH_MAX - 1);
        let no = self.bring_near(no, REACH_MAX);
        let (jt, jf) = (self.distance(yes), self.distance(no));
        self.put(PendingInstruction { code: comparison, jt, jf, k })
    }

    /// Returns the program. It starts with the instruction that was added last.
    pub(super) fn finish(self) -> Result<Vec<Instruction>, CompileError> {
        let instructions = self.reversed.len() + self.surplus;
        if instructions > INSTRUCTIONS_MAX {
            return Err(CompileError::TooLong { instructions });
        }
        self.reversed.into_iter().rev().map(PendingInstruction::fix).collect()
    }

    fn put_before(&mut self, code: u16, k: u32, next: Label) -> Label {
        self.bring_near(next, 0);
        self.put(PendingInstruction { code, jt: 0, jf: 0, k })
    }

    fn put_return(&mut self, verdict: u32) -> Label {
        let place = self.put(PendingInstruction { code: code::RETURN, jt: 0, jf: 0, k: verdict });
        self.returns.retain(|(known, _)| *known != verdict);
        self.returns.push((verdict, place));
        place
    }

    /// Returns `target` if it is at most `reach` away, else adds an instruction that leads there.
    fn bring_near(&mut self, target: Label, reach: usize) -> Label {
        let distance = self.distance(target);
        if distance <= reach {
            return target;
        }
        match self.reversed.get(target.0) {
            Some(PendingInstruction { code: code::RETURN, k, .. }) => self.put_return(*k),
            _ => self.put(PendingInstruction { code: code::JUMP, jt: distance, jf: 0, k: 0 }),
        }
    }

    /// The number of instructions between the next one added and `target`.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0 - 1
    }

    fn put(&mut self, instruction: PendingInstruction) -> Label {
        // A short profile can expand to millions of comparisons.
        if self.reversed.len() > INSTRUCTIONS_MAX {
            self.surplus += 1;
        } else {
            self.reversed.push(instruction);
        }
        Label(self.reversed.len() - 1)
    }
}

impl PendingInstruction {
    fn fix(self) -> Result<Instruction, CompileError> {
        let Self { code, jt, jf, k } = self;
        let out_of_reach = |_| CompileError::OutOfReach { instructions: jt.max(jf) };
        if code == code::JUMP {
            let k = u32::try_from(jt).map_err(out_of_reach)?;
            return Ok(Instruction { code, jt: 0, jf: 0, k });
        }
        let jt = u8::try_from(jt).map_err(out_of_reach)?;
        let jf = u8::try_from(jf).map_err(out_of_reach)?;
        Ok(Instruction { code, jt, jf, k })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::interpret::{SeccompData, decide};

    /// Allows the numbers in `odd` and kills others, with one chain of comparisons. The longer the
    /// chain, the longer the jumps.
    fn chain(odd: &[u32]) -> Filter {
        let mut assembler = Assembler::default();
        let yes = assembler.verdict(Action::Allow);
        let no = assembler.verdict(Action::KillProcess);
        // A target other than `RETURN` needs a jump; a `RETURN` would be copied.
        let yes = assembler.load(0, yes);
        let tests = odd
            .iter()
            .fold(no, |next, number| assembler.branch(code::JUMP_IF_EQUAL, *number, yes, next));
        assembler.load(0, tests);
        Filter { name: "chain".into(), program: assembler.finish().unwrap() }
    }

    #[test]
    fn jumps_beyond_255_instructions_arrive() {
        let odd: Vec<u32> = (0..900).map(|number| number * 2 + 1).collect();
        for length in [1, 2, 253, 254, 255, 256, 257, 258, 511, 512, 900] {
            let filter = chain(&odd[..length]);
            for number in 0..2000 {
                let data = SeccompData { number, ..SeccompData::default() };
                let want = if odd[..length].contains(&number) {
                    Action::Allow
                } else {
                    Action::KillProcess
                };
                assert_eq!(decide(&filter, &data), Ok(want), "{number} in {length}");
            }
        }
    }

    #[test]
    fn a_program_too_long_for_the_kernel_is_refused() {
        let mut assembler = Assembler::default();
        let mut place = assembler.verdict(Action::Allow);
        for _ in 0..INSTRUCTIONS_MAX {
            place = assembler.load(0, place);
        }
        let instructions = INSTRUCTIONS_MAX + 1;
        assert_eq!(assembler.finish(), Err(CompileError::TooLong { instructions }));
    }

    #[test]
    fn a_program_far_too_long_uses_no_more_memory_than_one_just_too_long() {
        let mut assembler = Assembler::default();
        let (yes, no) = (assembler.verdict(Action::Allow), assembler.verdict(Action::KillProcess));
        let mut next = no;
        for k in 0..100_000 {
            next = assembler.branch(code::JUMP_IF_EQUAL, k, yes, next);
        }
        assert_eq!(assembler.reversed.len(), INSTRUCTIONS_MAX + 1);
        assert!(assembler.returns.len() <= 2);
        let refused = assembler.finish();
        assert!(
            matches!(refused, Err(CompileError::TooLong { instructions }) if instructions > 100_000),
            "{refused:?}"
        );
    }
}
