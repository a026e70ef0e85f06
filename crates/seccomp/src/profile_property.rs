//! Property of profiles: a compiled program decides as its rules do one by one.

use serde::Deserialize;

use crate::compile::{CompileError, Policy};
use crate::filter::{Filter, INSTRUCTIONS_MAX, code};
use crate::interpret::{SeccompData, decide};
use crate::oracle;
use crate::profile::{Profile, ProfileError};
use crate::rules::{Circumstance, RuleEntry, Rules};
use crate::syscalls::Arch;

/// The most calls tried on one program.
const PROBES_MAX: usize = 400;
/// Bytes of one call in the input: number, architecture, six arguments.
const CALL_BYTES: usize = 4 + 4 + 6 * 8;

/// The input is a profile's text, then, after the first NUL, calls to try on it.
pub fn check(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let Ok(text) = std::str::from_utf8(parts.next().unwrap_or_default()) else { return };
    let calls = parts.next().unwrap_or_default();
    for arch in Arch::ALL {
        match Profile::parse_for(arch, text, |name| shipped(name).map(str::to_owned)) {
            Ok(profile) => decides_by_its_rules(&profile, text, calls, arch),
            // A profile that passes the linter compiles, unless the program is too long.
            Err(ProfileError::Compile { source, .. }) => assert!(
                matches!(source, CompileError::TooLong { instructions } if instructions > INSTRUCTIONS_MAX),
                "{source:?}"
            ),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// The profiles that others may extend.
fn shipped(name: &str) -> Option<&'static str> {
    match name {
        "default" => Some(include_str!("../../../sandbox-profiles/default.toml")),
        "init" => Some(include_str!("../../../sandbox-profiles/init.toml")),
        _ => None,
    }
}

fn decides_by_its_rules(profile: &Profile, text: &str, calls: &[u8], arch: Arch) {
    let policy = merged(text);
    let with_writable_binds = policy.in_case_of(Circumstance::WritableBinds);
    for (filter, policy) in
        [(&profile.filter, &policy), (&profile.writable_binds_filter, &with_writable_binds)]
    {
        is_one_the_kernel_takes(filter);
        for data in probes(policy, calls, arch) {
            let want = oracle::answer(policy, arch, &data);
            assert_eq!(decide(filter, &data), Ok(want), "{arch:?} {data:x?}");
        }
    }
    for path in
        [&profile.root.hide, &profile.root.keep, &profile.root.devices].into_iter().flatten()
    {
        let plain = path.starts_with('/') && !path.split('/').any(|part| part == "..");
        assert!(plain && !path.contains('\0'), "{path:?}");
    }
}

/// Asserts that the length is within the kernel's limit and every jump stays inside the program.
fn is_one_the_kernel_takes(Filter { program, .. }: &Filter) {
    assert!(program.len() <= INSTRUCTIONS_MAX, "{} instructions", program.len());
    for (at, instruction) in program.iter().enumerate() {
        let farthest = match instruction.code {
            code::RETURN => continue,
            code::JUMP => instruction.k as usize,
            _ => usize::from(instruction.jt.max(instruction.jf)),
        };
        assert!(at + 1 + farthest < program.len(), "instruction {at} leads out of the program");
    }
}

/// The profile's rules, then those of the profiles that it extends.
fn merged(text: &str) -> Policy {
    #[derive(Deserialize)]
    struct File {
        extends: Option<String>,
        #[serde(default)]
        seccomp: Rules,
    }
    let mut merged = Rules::default();
    let mut next = Some(text.to_owned());
    while let Some(File { extends, seccomp }) = next.and_then(|text| toml::from_str(&text).ok()) {
        merged.layers.extend(seccomp.layers);
        merged.otherwise = seccomp.otherwise;
        if merged.otherwise.is_some() {
            break;
        }
        next = extends.and_then(|name| shipped(&name)).map(str::to_owned);
    }
    let Some(otherwise) = merged.otherwise else {
        unreachable!("the linter passes no profile that says `otherwise` nowhere")
    };
    Policy { layers: merged.layers, otherwise }
}

/// The calls of the input, then calls that meet or just miss the conditions of each entry.
fn probes(policy: &Policy, calls: &[u8], arch: Arch) -> Vec<SeccompData> {
    let mut probes: Vec<SeccompData> = calls.chunks_exact(CALL_BYTES).map(call).collect();
    let entries = policy.layers.iter().flat_map(|layer| &layer.entries);
    for entry in entries {
        for number in entry.names().filter_map(|name| arch.number(name)).take(4) {
            probes.extend(near(entry, number, arch));
        }
    }
    let edges = [0, 1, 0x3fff_ffff, 0x4000_0000, 0x8000_0000, u32::MAX];
    let spread = calls.iter().map(|byte| u32::from(*byte) * 2).chain(edges);
    probes.extend(spread.map(|number| SeccompData { number, arch: arch.audit(), ..probe() }));
    // For a profile with many entries, only every n-th probe is tried.
    let step = probes.len().div_ceil(PROBES_MAX).max(1);
    probes.into_iter().step_by(step).collect()
}

fn probe() -> SeccompData {
    SeccompData { instruction_pointer: 0x1234_5678_9abc_def0, ..SeccompData::default() }
}

fn call(bytes: &[u8]) -> SeccompData {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let whole = |index: usize| {
        let at = 8 + 8 * index;
        u64::from(word(at)) | u64::from(word(at + 4)) << 32
    };
    // Most foreign architectures are decided alike, so the input mostly selects a supported one.
    let arch = match word(4) {
        even if even % 2 == 0 => Arch::X86_64.audit(),
        odd if odd % 4 == 1 => Arch::Aarch64.audit(),
        other => other,
    };
    let number = if word(0) % 2 == 0 { word(0) / 2 % 512 } else { word(0) };
    SeccompData { number, arch, args: [0, 1, 2, 3, 4, 5].map(whole), ..probe() }
}

/// A call `number` that meets all conditions of `entry`, and its neighbours in every argument.
fn near(entry: &RuleEntry, number: u32, arch: Arch) -> Vec<SeccompData> {
    let mut met = SeccompData { number, arch: arch.audit(), ..probe() };
    for condition in &entry.when {
        // Bits outside the mask are set.
        let ignored = !condition.mask;
        let value = condition.values.last().copied().unwrap_or_default();
        met.args[usize::from(condition.arg)] = value | ignored;
    }
    let mut probes = vec![met];
    for condition in &entry.when {
        let lowest = condition.mask & condition.mask.wrapping_neg();
        let highest = 1_u64 << (63 - condition.mask.leading_zeros());
        let mut others: Vec<u64> = condition.values.iter().take(4).copied().collect();
        let current = met.args[usize::from(condition.arg)];
        others.extend([current ^ lowest, current ^ highest, current ^ 1 << 32, 0, u64::MAX]);
        for other in others {
            let mut missed = met;
            missed.args[usize::from(condition.arg)] = other;
            probes.push(missed);
        }
    }
    probes
}

#[cfg(test)]
mod tests {
    use cofferdam_fixtures::kept_inputs;

    #[test]
    fn every_kept_input_holds() {
        kept_inputs::replay("seccomp_profile", super::check);
    }
}
