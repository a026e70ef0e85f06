//! Compiles ordered layers to one BPF program.
//!
//! The kernel runs a filter for every call that it cannot prove to be always allowed, and once per
//! number when the filter is installed. Depth therefore matters more than size, and the program is a
//! balanced tree over ranges of numbers that share a decision.

use std::collections::HashMap;

use nix::errno::Errno;

pub use super::assemble::CompileError;
use super::assemble::{Assembler, Label};
use super::filter::{Filter, code, halves};
use super::rules::{Action, Circumstance, Condition, Otherwise, RuleEntry, RuleLayer, Width};
use super::syscalls::Arch;

/// Offsets in `struct seccomp_data`, in bytes.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGS_OFFSET: u32 = 16;

/// The first number of the x32 ABI, which shares x86_64's audit value.
const X32_NUMBER_MIN: u32 = 0x4000_0000;

/// All rules that decide calls: a profile's layers, then those of the profile that it extends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The layers, in the order in which they are checked.
    pub layers: Vec<RuleLayer>,
    /// The actions for calls that no layer decides.
    pub otherwise: Otherwise,
}

impl Policy {
    /// Returns the policy without the layers that do not apply in `circumstance`.
    pub fn in_case_of(&self, circumstance: Circumstance) -> Self {
        let asked = |layer: &&RuleLayer| layer.unless != Some(circumstance);
        let layers = self.layers.iter().filter(asked).cloned().collect();
        Self { layers, otherwise: self.otherwise.clone() }
    }
}

/// Compiles `policy` for `arch` into a filter named `name`.
///
/// # Errors
/// [`CompileError::TooLong`] if the program has more than 4096 instructions.
pub fn compile(name: &str, policy: &Policy, arch: Arch) -> Result<Filter, CompileError> {
    let mut assembler = Assembler::default();
    let calls = tree(&mut assembler, &ranges(policy, arch));
    let native = match arch {
        Arch::X86_64 => {
            let absent = assembler.verdict(Action::Errno(Errno::ENOSYS));
            let x32 = code::JUMP_IF_GREATER_OR_EQUAL;
            assembler.branch(x32, X32_NUMBER_MIN, absent, calls)
        }
        Arch::Aarch64 => calls,
    };
    let native = assembler.load(NUMBER_OFFSET, native);
    let foreign = assembler.verdict(Action::KillProcess);
    let start = assembler.branch(code::JUMP_IF_EQUAL, arch.audit(), native, foreign);
    assembler.load(ARCH_OFFSET, start);
    Ok(Filter { name: name.to_owned(), program: assembler.finish()? })
}

/// Call numbers from `first` to the next range's `first` that share a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CallRange<'a> {
    first: u32,
    decision: RuleChain<'a>,
}

/// The decision for a call: the action of the first rule that holds, else `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RuleChain<'a> {
    rules: Vec<(&'a [Condition], Action)>,
    last: Action,
}

/// The ranges of all numbers from 0 on. Neighbours with equal decisions are merged.
fn ranges(policy: &Policy, arch: Arch) -> Vec<CallRange<'_>> {
    let unknown = |first| CallRange {
        first,
        decision: RuleChain { rules: Vec::new(), last: policy.otherwise.unknown },
    };
    let mut entries = HashMap::<&str, Vec<&RuleEntry>>::new();
    for entry in policy.layers.iter().flat_map(|layer| &layer.entries) {
        entry.names().for_each(|name| entries.entry(name).or_default().push(entry));
    }
    let mut ranges = Vec::new();
    let mut next = 0;
    for (name, number) in arch.calls() {
        if *number > next {
            ranges.push(unknown(next));
        }
        let naming = entries.get(name).map_or(&[][..], Vec::as_slice);
        ranges
            .push(CallRange { first: *number, decision: decision(naming, policy.otherwise.known) });
        next = number + 1;
    }
    ranges.push(unknown(next));
    ranges.dedup_by(|later, earlier| later.decision == earlier.decision);
    ranges
}

/// The rules of the entries that name a call, up to the first entry without conditions.
fn decision<'a>(naming: &[&'a RuleEntry], otherwise: Action) -> RuleChain<'a> {
    let mut rules = Vec::new();
    for entry in naming {
        if entry.when.is_empty() {
            return RuleChain { rules, last: entry.action };
        }
        rules.push((entry.when.as_slice(), entry.action));
    }
    RuleChain { rules, last: otherwise }
}

/// Adds a balanced search for the range of the loaded number.
fn tree(assembler: &mut Assembler, ranges: &[CallRange<'_>]) -> Label {
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some(first_high) = high.first() else {
        return assembler.verdict(Action::KillProcess);
    };
    if low.is_empty() {
        return leaf(assembler, &first_high.decision);
    }
    let yes = tree(assembler, high);
    let no = tree(assembler, low);
    assembler.branch(code::JUMP_IF_GREATER_OR_EQUAL, first_high.first, yes, no)
}

fn leaf(assembler: &mut Assembler, decision: &RuleChain<'_>) -> Label {
    let last = assembler.verdict(decision.last);
    decision.rules.iter().rev().fold(last, |no, (conditions, action)| {
        let yes = assembler.verdict(*action);
        conditions.iter().rev().fold(yes, |yes, condition| test(assembler, condition, yes, no))
    })
}

/// Continues at `yes` if the masked argument is one of the values, else at `no`.
fn test(assembler: &mut Assembler, condition: &Condition, yes: Label, no: Label) -> Label {
    let low_offset = ARGS_OFFSET + 8 * u32::from(condition.arg);
    let [low_mask, high_mask] = halves(condition.mask);
    let mut equals = |offset, mask, values: &[u32], yes, no| {
        let compared = values
            .iter()
            .rev()
            .fold(no, |no, value| assembler.branch(code::JUMP_IF_EQUAL, *value, yes, no));
        let masked = assembler.and(mask, compared);
        assembler.load(offset, masked)
    };
    if condition.width == Width::Bits32 {
        let values: Vec<u32> = condition.values.iter().map(|value| halves(*value)[0]).collect();
        return equals(low_offset, low_mask, &values, yes, no);
    }
    condition.values.iter().rev().fold(no, |no, value| {
        let [low, high] = halves(*value);
        let low_half = equals(low_offset, low_mask, &[low], yes, no);
        // Without upper bits in the mask, the upper half is not compared.
        if high_mask == 0 {
            return low_half;
        }
        equals(low_offset + 4, high_mask, &[high], low_half, no)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use seccompiler::{SeccompAction, SeccompFilter};

    use super::*;
    use crate::filter::Instruction;
    use crate::interpret::{SeccompData, decide};
    use crate::rules::Rules;

    fn policy(text: &str) -> Policy {
        let rules: Rules = toml::from_str(text).unwrap();
        Policy { layers: rules.layers, otherwise: rules.otherwise.unwrap() }
    }

    fn call(arch: Arch, number: u32, args: [u64; 6]) -> SeccompData {
        SeccompData { number, arch: arch.audit(), instruction_pointer: 0, args }
    }

    fn allow_only(names: &[&str]) -> Policy {
        let entry = RuleEntry {
            syscalls: names.iter().map(ToString::to_string).collect(),
            optional: Vec::new(),
            action: Action::Allow,
            when: Vec::new(),
            reason: "sample".into(),
        };
        let absent = Action::Errno(Errno::ENOSYS);
        Policy {
            layers: vec![RuleLayer { name: "all".into(), unless: None, entries: vec![entry] }],
            otherwise: Otherwise { known: absent, unknown: absent, reason: "sample".into() },
        }
    }

    const SAMPLE: &str = r#"
        [otherwise]
        known = { errno = "ENOSYS" }
        unknown = { errno = "EINVAL" }
        [[layer]]
        name = "first"
        [[layer.entry]]
        syscalls = ["clone"]
        action = { errno = "EPERM" }
        when = [{ arg = 0, width = 64, mask = 0xff00_0000_0000_0001, eq = 0x0100_0000_0000_0001 }]
        [[layer.entry]]
        syscalls = ["socket"]
        action = "allow"
        when = [{ arg = 0, width = 32, one_of = [1, 2] }, { arg = 1, width = 32, mask = 0xf, one_of = [1, 2] }]
        [[layer.entry]]
        syscalls = ["socket"]
        action = "kill_process"
        when = [{ arg = 2, width = 64, one_of = [0x1_0000_0002, 0x2_0000_0001] }]
        [[layer]]
        name = "second"
        [[layer.entry]]
        syscalls = ["clone", "read"]
        action = "allow"
    "#;

    #[test]
    fn the_first_entry_that_matches_decides() {
        let policy = policy(SAMPLE);
        let (allow, kill) = (Action::Allow, Action::KillProcess);
        let [absent, refused] = [Errno::ENOSYS, Errno::EPERM].map(Action::Errno);
        let table = [
            ("clone", [0x0100_0000_0000_0001, 0, 0], refused),
            ("clone", [0x01ff_ffff_ffff_fffd, 0, 0], refused),
            ("clone", [0x0100_0000_0000_0000, 0, 0], allow),
            ("clone", [0x0300_0000_0000_0001, 0, 0], allow),
            ("clone", [1, 0, 0], allow),
            ("read", [1, 2, 3], allow),
            ("write", [1, 2, 3], absent),
            ("socket", [1, 1, 0], allow),
            ("socket", [0xdead_0000_0002, 0xbeef_0000_0802, 0], allow),
            ("socket", [3, 1, 0], absent),
            ("socket", [1, 3, 0], absent),
            ("socket", [1, 3, 0x1_0000_0002], kill),
            ("socket", [3, 3, 0x2_0000_0001], kill),
            ("socket", [3, 3, 0x1_0000_0001], absent),
            ("socket", [3, 3, 2], absent),
            ("socket", [1, 2, 0x1_0000_0002], allow),
        ];
        for arch in Arch::ALL {
            let filter = compile("sample", &policy, arch).unwrap();
            for (name, [first, second, third], want) in table {
                let data = call(arch, arch.number(name).unwrap(), [first, second, third, 0, 0, 0]);
                assert_eq!(decide(&filter, &data), Ok(want), "{arch:?} {name} {first:#x}");
            }
        }
    }

    #[test]
    fn other_abis_never_execute_a_call() {
        let [absent, unknown] = [Errno::ENOSYS, Errno::EINVAL].map(Action::Errno);
        let [x86, arm] = Arch::ALL.map(|arch| compile("s", &policy(SAMPLE), arch).unwrap());
        for number in 0..1024 {
            for (filter, foreign) in [
                (&x86, 0x4000_0003),
                (&x86, Arch::Aarch64.audit()),
                (&x86, 0),
                (&arm, 0x4000_0028),
                (&arm, Arch::X86_64.audit()),
            ] {
                let data = SeccompData { number, arch: foreign, ..SeccompData::default() };
                assert_eq!(decide(filter, &data), Ok(Action::KillProcess), "{foreign:#x}");
            }
            let x32 = call(Arch::X86_64, 0x4000_0000 | number, [0; 6]);
            assert_eq!(decide(&x86, &x32), Ok(absent), "{number}");
        }
        for (number, want) in [(0x3fff_ffff, unknown), (0x4000_0000, absent), (u32::MAX, absent)] {
            assert_eq!(decide(&x86, &call(Arch::X86_64, number, [0; 6])), Ok(want));
            assert_eq!(decide(&arm, &call(Arch::Aarch64, number, [0; 6])), Ok(unknown));
        }
    }

    #[test]
    fn numbers_newer_than_the_table_are_told_apart() {
        let filter = compile("sample", &policy(SAMPLE), Arch::X86_64).unwrap();
        let last = Arch::X86_64.calls().last().unwrap().1;
        for (number, want) in [(last, Errno::ENOSYS), (last + 1, Errno::EINVAL)] {
            let data = call(Arch::X86_64, number, [0; 6]);
            assert_eq!(decide(&filter, &data), Ok(Action::Errno(want)), "{number}");
        }
    }

    #[test]
    fn the_tree_is_as_shallow_as_its_ranges_allow() {
        for arch in Arch::ALL {
            let every_other: Vec<_> =
                arch.calls().iter().step_by(2).map(|(name, _)| *name).collect();
            let policy = allow_only(&every_other);
            let ranges = ranges(&policy, arch).len();
            let filter = compile("sample", &policy, arch).unwrap();
            let depth = filter.depth();
            // Two loads, two checks, the verdict, and at most one long jump.
            let bound = ranges.next_power_of_two().ilog2() as usize + 6;
            assert!(ranges > 300, "{arch:?}: {ranges} ranges");
            assert!(depth <= bound, "{arch:?}: {depth} > {bound}");
            let instructions = filter.program.len();
            assert!(instructions < 3 * ranges, "{arch:?}: {instructions}");
        }
    }

    #[test]
    fn equal_neighbours_share_a_range() {
        for arch in Arch::ALL {
            let (all, numbers): (Vec<_>, Vec<_>) = arch.calls().iter().copied().unzip();
            let gaps = numbers.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
            // Runs of calls, the gaps between them, and everything after the last.
            assert_eq!(ranges(&allow_only(&all), arch).len(), (gaps + 1) + gaps + 1, "{arch:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_plain_allow_list_decides_as_an_independent_compiler_does(
            picks in proptest::collection::vec(any::<bool>(), Arch::X86_64.calls().len())
        ) {
            let picked: Vec<_> = Arch::X86_64
                .calls()
                .iter()
                .zip(&picks)
                .filter_map(|(call, pick)| pick.then_some(*call))
                .collect();
            let names: Vec<_> = picked.iter().map(|(name, _)| *name).collect();
            let ours = compile("ours", &allow_only(&names), Arch::X86_64).unwrap();
            let rules: BTreeMap<_, _> =
                picked.iter().map(|(_, number)| (i64::from(*number), Vec::new())).collect();
            let independent = SeccompFilter::new(
                rules,
                SeccompAction::Errno(libc::ENOSYS as u32),
                SeccompAction::Allow,
                seccompiler::TargetArch::x86_64,
            );
            let program: seccompiler::BpfProgram = independent.unwrap().try_into().unwrap();
            let theirs = Filter {
                name: "theirs".into(),
                program: program
                    .iter()
                    .map(|i| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
                    .collect(),
            };
            for number in 0..1024 {
                let data = call(Arch::X86_64, number, [0; 6]);
                prop_assert_eq!(decide(&ours, &data), decide(&theirs, &data), "{}", number);
            }
        }
    }
}
