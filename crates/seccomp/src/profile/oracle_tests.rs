//! Compares every compiled filter with the oracle, for all inputs of a decision: architecture,
//! number and arguments.

use super::*;
use crate::interpret::{SeccompData, decide};
use crate::oracle::{X32, answer};
use crate::rules::Action;

/// How many numbers beyond the end of a table are checked.
const BEYOND: u32 = 600;
/// i386, 32-bit Arm, big-endian Arm, x86_64 with a bit missing, nothing.
const FOREIGN: [u32; 5] = [0x4000_0003, 0x4000_0028, 0x8000_00b7, 0x8000_003e, 0];

/// Arguments on both sides of every condition on `name`: all combinations of the values it names,
/// and each of them with every single bit flipped.
fn arguments(policy: &Policy, name: &str) -> Vec<[u64; 6]> {
    let entries = policy.layers.iter().flat_map(|layer| &layer.entries);
    let named = entries.filter(|entry| entry.names().any(|named| named == name));
    let mut values: [Vec<u64>; 6] = Default::default();
    for condition in named.flat_map(|entry| &entry.when) {
        values[usize::from(condition.arg)].extend(&condition.values);
    }
    let mut combinations = vec![[0; 6], [u64::MAX; 6]];
    for (index, values) in values.iter_mut().enumerate() {
        values.sort_unstable();
        values.dedup();
        for args in combinations.clone() {
            combinations.extend(values.iter().map(|value| with(args, index, *value)));
        }
    }
    let flipped = |args: [u64; 6]| {
        let looked_at = values.iter().enumerate().filter(|(_, values)| !values.is_empty());
        let indices = looked_at.map(|(index, _)| index);
        indices.flat_map(move |index| {
            (0..64).map(move |bit| with(args, index, args[index] ^ (1 << bit)))
        })
    };
    combinations.extend(combinations.clone().into_iter().flat_map(flipped));
    combinations
}

fn with(mut args: [u64; 6], index: usize, value: u64) -> [u64; 6] {
    args[index] = value;
    args
}

fn shipped_policy(name: &str) -> Policy {
    let read = MergedProfile::of(builtin_text(name).unwrap(), |base| {
        builtin_text(base).map(str::to_owned)
    });
    read.unwrap().policy
}

#[test]
fn every_number_and_argument_is_decided_as_the_rules_say() {
    for name in Profile::builtin_names() {
        let policy = shipped_policy(name);
        for arch in Arch::ALL {
            let filter = compile(name, &policy, arch).unwrap();
            let mut looked_at = 0;
            let last = arch.calls().last().unwrap().1;
            for number in 0..=last + BEYOND {
                let call = arch.calls().iter().find(|(_, known)| *known == number);
                let call = call.map_or("", |(name, _)| name);
                for args in arguments(&policy, call) {
                    let arch_word = arch.audit();
                    let data = SeccompData { number, arch: arch_word, args, ..Default::default() };
                    let want = answer(&policy, arch, &data);
                    assert_eq!(decide(&filter, &data), Ok(want), "{name} {arch:?} {data:x?}");
                    looked_at += 1;
                }
            }
            assert!(looked_at > 2 * (last + BEYOND), "{name} {arch:?}: {looked_at}");
        }
    }
}

#[test]
fn no_number_of_another_abi_is_executed() {
    for name in Profile::builtin_names() {
        let policy = shipped_policy(name);
        for arch in Arch::ALL {
            let filter = compile(name, &policy, arch).unwrap();
            let last = arch.calls().last().unwrap().1;
            let low = 0..=last + BEYOND;
            let edges = [X32 - 1, i32::MAX.unsigned_abs(), 1 << 31, u32::MAX];
            for number in low.clone().chain(low.map(|number| X32 | number)).chain(edges) {
                let other = Arch::ALL.into_iter().filter(|other| *other != arch).map(Arch::audit);
                let one_bit = (0..32).map(|bit| arch.audit() ^ (1 << bit));
                for foreign in FOREIGN.into_iter().chain(other).chain(one_bit) {
                    for args in [[0; 6], [u64::MAX; 6]] {
                        let data =
                            SeccompData { number, arch: foreign, args, ..Default::default() };
                        let decided = decide(&filter, &data);
                        assert_eq!(decided, Ok(Action::KillProcess), "{name} {arch:?} {data:x?}");
                    }
                }
                let data = SeccompData { number, arch: arch.audit(), ..Default::default() };
                assert_eq!(decide(&filter, &data), Ok(answer(&policy, arch, &data)));
                if number > last {
                    assert_ne!(decide(&filter, &data), Ok(Action::Allow), "{name} {data:x?}");
                }
            }
        }
    }
}

/// Asserts that `wide` allows every call that `narrow` allows. Returns the number of calls that
/// `narrow` allows with some arguments.
fn allows_less(narrow: &str, wide: &str, arch: Arch) -> usize {
    let policies = [narrow, wide].map(shipped_policy);
    let [narrow_filter, wide_filter] =
        policies.each_ref().map(|policy| compile("sample", policy, arch).unwrap());
    let mut allowed = 0;
    for (name, number) in arch.calls() {
        let mut is_allowed = false;
        let all = policies.iter().flat_map(|policy| arguments(policy, name));
        for args in all {
            let data =
                SeccompData { number: *number, arch: arch.audit(), args, ..Default::default() };
            if decide(&narrow_filter, &data) == Ok(Action::Allow) {
                let decided = decide(&wide_filter, &data);
                assert_eq!(decided, Ok(Action::Allow), "{narrow} {arch:?} {name} {data:x?}");
                is_allowed = true;
            }
        }
        allowed += usize::from(is_allowed);
    }
    allowed
}

#[test]
fn the_strict_profile_allows_nothing_the_default_one_does_not() {
    for arch in Arch::ALL {
        let allowed = allows_less("strict-native", "default", arch);
        assert!((90..140).contains(&allowed), "{arch:?}: {allowed} calls allowed");
    }
}

#[test]
fn the_network_profile_allows_nothing_the_default_one_does_not() {
    for arch in Arch::ALL {
        let allowed = allows_less("network", "default", arch);
        assert!(allowed > 180, "{arch:?}: {allowed} calls allowed");
    }
}
