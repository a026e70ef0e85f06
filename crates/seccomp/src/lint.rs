//! Finds common mistakes in a profile's rules for system calls.

use std::collections::{HashMap, HashSet};
use std::fmt;

use nix::errno::Errno;

use super::rules::{Action, Circumstance, Condition, RuleEntry, RuleLayer, Rules, Width};
use super::syscalls;

/// Arguments that may be compared, with the width that the kernel reads. A 64-bit comparison of an
/// `int` can be bypassed by setting a bit that the kernel ignores; a 32-bit comparison of a `long`
/// misses its upper half. Arguments not listed here have not been checked.
#[rustfmt::skip]
const WIDTHS: [(&str, &[u8], Width); 28] = [
    ("chmod", &[1], Width::Bits32),
    ("clone", &[0], Width::Bits64),
    ("close", &[0], Width::Bits32),
    ("creat", &[1], Width::Bits32),
    ("fchmod", &[1], Width::Bits32),
    ("fchmodat", &[2], Width::Bits32),
    ("fchmodat2", &[2, 3], Width::Bits32),
    ("fcntl", &[1], Width::Bits32),
    ("getsockopt", &[1, 2], Width::Bits32),
    ("ioctl", &[1], Width::Bits32),
    ("madvise", &[2], Width::Bits32),
    ("memfd_create", &[1], Width::Bits32),
    ("mknod", &[1], Width::Bits32),
    ("mknodat", &[2], Width::Bits32),
    ("mmap", &[2, 3], Width::Bits64),
    ("mprotect", &[2], Width::Bits64),
    ("msync", &[2], Width::Bits32),
    ("open", &[1, 2], Width::Bits32),
    ("openat", &[2, 3], Width::Bits32),
    ("personality", &[0], Width::Bits32),
    ("prctl", &[0], Width::Bits32),
    ("prctl", &[1], Width::Bits64),
    ("renameat2", &[4], Width::Bits32),
    ("seccomp", &[0, 1], Width::Bits32),
    ("setsockopt", &[1, 2], Width::Bits32),
    ("shmget", &[2], Width::Bits32),
    ("socket", &[0, 1, 2], Width::Bits32),
    ("socketpair", &[0, 1, 2], Width::Bits32),
];

/// Arguments that are file modes, of which the kernel reads 16 bits.
#[rustfmt::skip]
const MODES: [(&str, u8); 9] = [
    ("chmod", 1), ("creat", 1), ("fchmod", 1), ("fchmodat", 2),
    ("fchmodat2", 2), ("mknod", 1), ("mknodat", 2), ("open", 2), ("openat", 3),
];
const MODE_BITS: u64 = 0xffff;

/// All CLONE_NEW* flags. The bit of CLONE_NEWTIME belongs to the exit signal here, and no existing
/// signal has it.
const CLONE_NEW: u64 = 0x7e02_0080;

/// Calls for which C libraries and runtimes have a fallback that they use only after `ENOSYS`.
const NEVER_EPERM: [&str; 2] = ["clone3", "copy_file_range"];

/// Calls that may return 0 without being executed: they only wait until data is on disk.
const MAY_PRETEND: [&str; 6] = ["fdatasync", "fsync", "msync", "sync", "sync_file_range", "syncfs"];

/// A mistake and its location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {trap}")]
pub struct LintFinding {
    /// The part of the profile.
    pub place: LintLocation,
    /// The mistake.
    pub trap: Trap,
}

/// A part of a profile that decides calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LintLocation {
    /// An entry of a layer.
    Entry {
        /// The layer's name.
        layer: String,
        /// The entry's position in it, from 1.
        number: usize,
    },
    /// A layer as a whole.
    Layer {
        /// Its name.
        layer: String,
    },
    /// The actions for calls that no entry decides.
    Otherwise,
}

impl fmt::Display for LintLocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { layer, number } => write!(out, "layer {layer:?}, entry {number}"),
            Self::Layer { layer } => write!(out, "layer {layer:?}"),
            Self::Otherwise => out.write_str("otherwise"),
        }
    }
}

/// A mistake in a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trap {
    /// A name that is probably misspelled, which would leave a call undecided.
    #[error("no architecture has a call {0:?}")]
    UnknownCall(String),
    /// The entry decides nothing.
    #[error("names no call")]
    NoCall,
    /// An earlier entry names the same call under the same conditions.
    #[error("{call} was named under the same conditions in {earlier}")]
    Duplicate {
        /// The call.
        call: String,
        /// The earlier entry.
        earlier: LintLocation,
    },
    /// An earlier entry holds whenever this one would.
    #[error("{call} is always decided in {earlier}")]
    Shadowed {
        /// The call.
        call: String,
        /// The earlier entry.
        earlier: LintLocation,
    },
    /// The comparison is wider or narrower than what the kernel reads.
    #[error("argument {arg} of {call} has to be compared as {needed:?}")]
    WrongWidth {
        /// The call.
        call: String,
        /// The argument, from 0.
        arg: u8,
        /// The width the kernel reads.
        needed: Width,
    },
    /// A comparison of an argument whose width is not known.
    #[error("argument {arg} of {call} has no known width")]
    UnknownWidth {
        /// The call.
        call: String,
        /// The argument, from 0.
        arg: u8,
    },
    /// A comparison of bits that the kernel ignores, so setting one of them bypasses it.
    #[error("argument {arg} of {call} is a mode; only 16 bits of it are read")]
    IgnoredBits {
        /// The call.
        call: String,
        /// The argument, from 0.
        arg: u8,
    },
    /// The entry allows new namespaces, and with them new capabilities.
    #[error("{0} is allowed with namespace flags")]
    Unmasked(String),
    /// A layer without entries decides nothing.
    #[error("has no entry")]
    NoEntry,
    /// The name would make findings ambiguous.
    #[error("another layer has this name")]
    SameName,
    /// `otherwise.known` applies to no call.
    #[error("known is never asked: every call is decided by an entry")]
    NeverAsked,
    /// Without a reason, it is unknown later whether the entry is still needed.
    #[error("gives no reason")]
    NoReason,
    /// Callers would rely on an effect that did not happen.
    #[error("{0} must not succeed without being executed")]
    Pretended(String),
    /// Callers fall back on `ENOSYS` but fail on `EPERM`.
    #[error("{0} must not fail with EPERM")]
    Eperm(String),
}

/// Returns all mistakes in `rules`: of layers, then of entries in file order, then of `otherwise`.
pub fn lint(rules: &Rules) -> Vec<LintFinding> {
    let known: HashSet<&str> = syscalls::names().collect();
    let mut findings = layers(&rules.layers);
    let mut earlier = HashMap::<&str, Vec<_>>::new();
    for (place, unless, entry) in &placed(rules) {
        let hides = |call| hidden(entry, *unless, call, earlier.get(call)?);
        let traps = alone(entry, &known)
            .into_iter()
            .chain(repeated(entry, place))
            .chain(entry.names().filter_map(hides));
        findings.extend(traps.map(|trap| LintFinding { place: place.clone(), trap }));
        for call in entry.names() {
            earlier.entry(call).or_default().push((place.clone(), *unless, *entry));
        }
    }
    let traps = otherwise(rules).into_iter();
    findings.extend(traps.map(|trap| LintFinding { place: LintLocation::Otherwise, trap }));
    findings
}

fn layers(layers: &[RuleLayer]) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let mut find = |trap| {
            findings.push(LintFinding {
                place: LintLocation::Layer { layer: layer.name.clone() },
                trap,
            });
        };
        if layer.entries.is_empty() {
            find(Trap::NoEntry);
        }
        if layers.iter().take(index).any(|earlier| earlier.name == layer.name) {
            find(Trap::SameName);
        }
    }
    findings
}

/// The location of an entry, when its layer does not apply, and the entry.
type LocatedEntry<'a> = (LintLocation, Option<Circumstance>, &'a RuleEntry);

/// Every entry, in file order.
fn placed(rules: &Rules) -> Vec<LocatedEntry<'_>> {
    let mut placed = Vec::new();
    for layer in &rules.layers {
        for (entry, number) in layer.entries.iter().zip(1..) {
            let place = LintLocation::Entry { layer: layer.name.clone(), number };
            placed.push((place, layer.unless, entry));
        }
    }
    placed
}

/// The mistakes in one entry that do not depend on other entries.
fn alone(entry: &RuleEntry, known: &HashSet<&str>) -> Vec<Trap> {
    let mut traps = Vec::new();
    if entry.names().next().is_none() {
        traps.push(Trap::NoCall);
    }
    if entry.reason.trim().is_empty() {
        traps.push(Trap::NoReason);
    }
    for call in entry.syscalls.iter().filter(|call| !known.contains(call.as_str())) {
        traps.push(Trap::UnknownCall(call.clone()));
    }
    for call in entry.names() {
        if is_eperm(entry.action) && NEVER_EPERM.contains(&call) {
            traps.push(Trap::Eperm(call.to_owned()));
        }
        if entry.action == Action::Succeed && !MAY_PRETEND.contains(&call) {
            traps.push(Trap::Pretended(call.to_owned()));
        }
        if entry.action == Action::Allow && !forbids_namespaces(call, &entry.when) {
            traps.push(Trap::Unmasked(call.to_owned()));
        }
        traps.extend(entry.when.iter().filter_map(|condition| wrong_width(call, condition)));
    }
    traps
}

fn wrong_width(call: &str, condition: &Condition) -> Option<Trap> {
    let (call, arg) = (call.to_owned(), condition.arg);
    let known = WIDTHS.iter().find(|(of, args, _)| *of == call && args.contains(&arg));
    match known {
        None => Some(Trap::UnknownWidth { call, arg }),
        Some((.., needed)) if *needed != condition.width => {
            Some(Trap::WrongWidth { call, arg, needed: *needed })
        }
        Some(_) if MODES.contains(&(&*call, arg)) && condition.mask & !MODE_BITS != 0 => {
            Some(Trap::IgnoredBits { call, arg })
        }
        Some(_) => None,
    }
}

/// Whether these conditions keep `call` from making a namespace. The flags of clone3 are in memory,
/// which a filter cannot read.
fn forbids_namespaces(call: &str, when: &[Condition]) -> bool {
    match call {
        "clone" => when.iter().any(|condition| {
            let masked = condition.arg == 0 && condition.mask & CLONE_NEW == CLONE_NEW;
            masked && condition.values.iter().all(|value| value & CLONE_NEW == 0)
        }),
        "clone3" | "unshare" | "setns" => false,
        _ => true,
    }
}

/// Calls that the entry names more than once.
fn repeated(entry: &RuleEntry, place: &LintLocation) -> Vec<Trap> {
    let again = |(position, call): (usize, &str)| {
        entry
            .names()
            .take(position)
            .any(|before| before == call)
            .then(|| Trap::Duplicate { call: call.to_owned(), earlier: place.clone() })
    };
    entry.names().enumerate().filter_map(again).collect()
}

/// The mistake if one of the `earlier` entries always decides `call`, so `entry` never does. An
/// entry whose layer does not apply in some circumstance decides nothing there.
fn hidden(
    entry: &RuleEntry,
    unless: Option<Circumstance>,
    call: &str,
    earlier: &[LocatedEntry<'_>],
) -> Option<Trap> {
    let (place, _, by) = earlier.iter().find(|(_, by_unless, by)| {
        (by_unless.is_none() || *by_unless == unless)
            && implies(&entry.when, &by.when)
            && by.names().any(|named| named == call)
    })?;
    let (call, earlier) = (call.to_owned(), place.clone());
    Some(if by.when == entry.when {
        Trap::Duplicate { call, earlier }
    } else {
        Trap::Shadowed { call, earlier }
    })
}

/// Whether `earlier` holds whenever `later` does, judged condition by condition.
fn implies(later: &[Condition], earlier: &[Condition]) -> bool {
    let covered = |wide: &Condition, narrow: &Condition| {
        let same = (wide.arg, wide.width) == (narrow.arg, narrow.width);
        let sees_less = wide.mask & !narrow.mask == 0;
        same && sees_less && narrow.values.iter().all(|v| wide.values.contains(&(v & wide.mask)))
    };
    earlier.iter().all(|wide| later.iter().any(|narrow| covered(wide, narrow)))
}

/// The mistakes in the actions for calls that no entry decides.
fn otherwise(rules: &Rules) -> Vec<Trap> {
    let Some(otherwise) = &rules.otherwise else {
        return Vec::new();
    };
    let always = || rules.layers.iter().filter(|layer| layer.unless.is_none());
    let entries = || always().flat_map(|layer| &layer.entries);
    let mut decided: Vec<&str> =
        entries().filter(|entry| entry.when.is_empty()).flat_map(RuleEntry::names).collect();
    decided.sort_unstable();
    let is_open = |call: &&str| decided.binary_search(call).is_err();
    let mut traps = Vec::new();
    if otherwise.reason.trim().is_empty() {
        traps.push(Trap::NoReason);
    }
    if is_eperm(otherwise.known) {
        let open = NEVER_EPERM.into_iter().filter(is_open);
        traps.extend(open.map(|call| Trap::Eperm(call.to_owned())));
    }
    if is_eperm(otherwise.unknown) {
        traps.push(Trap::Eperm("a call newer than the table".to_owned()));
    }
    if [otherwise.known, otherwise.unknown].contains(&Action::Succeed) {
        traps.push(Trap::Pretended("a call that no entry decides".to_owned()));
    }
    if otherwise.known == Action::Allow {
        let open = ["clone", "clone3", "setns", "unshare"].into_iter().filter(is_open);
        traps.extend(open.map(|call| Trap::Unmasked(call.to_owned())));
    }
    if !syscalls::names().any(|call| is_open(&call)) {
        traps.push(Trap::NeverAsked);
    }
    traps
}

fn is_eperm(action: Action) -> bool {
    action == Action::Errno(Errno::EPERM)
}

#[cfg(test)]
mod tests;
