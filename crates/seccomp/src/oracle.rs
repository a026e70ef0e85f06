//! The oracle for compiled programs: it evaluates a policy's rules one by one.

use nix::errno::Errno;

use super::compile::Policy;
use super::interpret::SeccompData;
use super::rules::{Action, Condition, RuleEntry, Width};
use super::syscalls::Arch;

/// The first number of the x32 ABI.
pub const X32: u32 = 0x4000_0000;

/// The action of the rules for a call, as the crate's documentation defines it.
pub fn answer(policy: &Policy, arch: Arch, data: &SeccompData) -> Action {
    if data.arch != arch.audit() {
        return Action::KillProcess;
    }
    if arch == Arch::X86_64 && data.number >= X32 {
        return Action::Errno(Errno::ENOSYS);
    }
    let Some((name, _)) = arch.calls().iter().find(|(_, number)| *number == data.number) else {
        return policy.otherwise.unknown;
    };
    let mut entries = policy.layers.iter().flat_map(|layer| &layer.entries);
    let decides = |entry: &&RuleEntry| {
        entry.names().any(|named| named == *name)
            && entry.when.iter().all(|condition| holds(condition, &data.args))
    };
    entries.find(decides).map_or(policy.otherwise.known, |entry| entry.action)
}

fn holds(condition: &Condition, args: &[u64; 6]) -> bool {
    let whole = args[usize::from(condition.arg)];
    let read = match condition.width {
        Width::Bits32 => whole & u64::from(u32::MAX),
        Width::Bits64 => whole,
    };
    condition.values.contains(&(read & condition.mask))
}
