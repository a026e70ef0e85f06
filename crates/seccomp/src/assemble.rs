//! Builds a BPF program from its end towards its start.
//!
//! BPF jumps only forwards, so in this direction every target is in place, with a known
//! distance, when the jump to it is put down.

use super::filter::{INSTRUCTIONS_MAX, Instruction, code};
use super::rules::Action;

/// The farthest a comparison can jump, in instructions.
const REACH_MAX: usize = 255;

/// Why there is no program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The kernel takes at most [`INSTRUCTIONS_MAX`].
    #[error("the filter has {instructions} instructions, more than the kernel takes")]
    TooLong {
        /// How many there are.
        instructions: usize,
    },
    /// A comparison was put too far from its target.
    #[error("a jump of {instructions} instructions is out of reach")]
    OutOfReach {
        /// The distance asked for.
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
    /// For each verdict, the `RETURN` of it nearest to the start.
    returns: Vec<(u32, Label)>,
    /// Instructions beyond what the kernel takes, which are counted and not kept.
    surplus: usize,
}

/// An instruction whose distances may still be any size.
#[derive(Debug, Clone, Copy)]
struct PendingInstruction {
    code: u16,
    jt: usize,
    jf: usize,
    k: u32,
}

impl Assembler {
    /// Ends the program with `action`; one instruction serves every use in reach.
    pub(super) fn verdict(&mut self, action: Action) -> Label {
        let verdict = action.verdict();
        match self.returns.iter().find(|(known, _)| *known == verdict) {
            Some((_, place)) => *place,
            None => self.put_return(verdict),
        }
    }

    /// Loads the word at `offset` of `seccomp_data`, then goes on at `next`.
    pub(super) fn load(&mut self, offset: u32, next: Label) -> Label {
        self.put_before(code::LOAD_WORD, offset, next)
    }

    /// Keeps the bits of `mask` in the loaded word, then goes on at `next`.
    pub(super) fn and(&mut self, mask: u32, next: Label) -> Label {
        if mask == u32::MAX { next } else { self.put_before(code::AND, mask, next) }
    }

    /// Goes on at `yes` when the comparison of the loaded word with `k` holds, else at `no`.
    pub(super) fn branch(&mut self, comparison: u16, k: u32, yes: Label, no: Label) -> Label {
        // Bringing `no` near may put one more instruction between the branch and `yes`.
        let yes = self.bring_near(yes, REACH_MAX - 1);
        let no = self.bring_near(no, REACH_MAX);
        let (jt, jf) = (self.distance(yes), self.distance(no));
        self.put(PendingInstruction { code: comparison, jt, jf, k })
    }

    /// The program, which starts with the instruction put last.
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

    /// `target` itself when it is at most `reach` away, else a new instruction that leads there.
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

    /// How many instructions lie between the next one put down and `target`.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0 - 1
    }

    fn put(&mut self, instruction: PendingInstruction) -> Label {
        // A short text can stand for millions of comparisons.
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

    /// `number` is allowed when it is one of `odd`, and killed otherwise, by one chain of compares
    /// whose two ends are farther apart the longer it gets.
    fn chain(odd: &[u32]) -> Filter {
        let mut assembler = Assembler::default();
        let yes = assembler.verdict(Action::Allow);
        let no = assembler.verdict(Action::KillProcess);
        // A target that is no `RETURN` has to be reached by a jump instead of a copy.
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
    fn a_program_the_kernel_would_not_take_is_refused() {
        let mut assembler = Assembler::default();
        let mut place = assembler.verdict(Action::Allow);
        for _ in 0..INSTRUCTIONS_MAX {
            place = assembler.load(0, place);
        }
        let instructions = INSTRUCTIONS_MAX + 1;
        assert_eq!(assembler.finish(), Err(CompileError::TooLong { instructions }));
    }

    #[test]
    fn a_program_far_too_long_takes_no_more_memory_than_one_just_too_long() {
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
