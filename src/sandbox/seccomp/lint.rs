//! Refuses the known traps in what a profile says about system calls.

use std::fmt;

use nix::errno::Errno;

use super::rules::{Action, Entry, Rules, Width};
use super::syscalls;

/// Arguments with the width the kernel reads. A 64-bit compare of an `int` is passed by setting a
/// bit the kernel ignores; a 32-bit compare of a `long` does not see half of it.
const WIDTHS: [(&str, u8, Width); 13] = [
    ("clone", 0, Width::Bits64),
    ("fcntl", 1, Width::Bits32),
    ("ioctl", 1, Width::Bits32),
    ("personality", 0, Width::Bits32),
    ("prctl", 0, Width::Bits32),
    ("seccomp", 0, Width::Bits32),
    ("seccomp", 1, Width::Bits32),
    ("socket", 0, Width::Bits32),
    ("socket", 1, Width::Bits32),
    ("socket", 2, Width::Bits32),
    ("socketpair", 0, Width::Bits32),
    ("socketpair", 1, Width::Bits32),
    ("socketpair", 2, Width::Bits32),
];

/// Calls that C libraries and runtimes try first and do without only when told `ENOSYS`.
const NEVER_EPERM: [&str; 2] = ["clone3", "copy_file_range"];

/// A trap and the entry it is in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {trap}")]
pub struct Finding {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub trap: Trap,
}

/// A part of a profile that decides calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An entry of a layer.
    Entry {
        /// The layer's name.
        layer: String,
        /// The entry's position in it, from 1.
        number: usize,
    },
    /// The actions for calls no entry decides.
    Otherwise,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { layer, number } => write!(out, "layer {layer:?}, entry {number}"),
            Self::Otherwise => out.write_str("otherwise"),
        }
    }
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trap {
    /// A typing error would leave a call undecided.
    #[error("no architecture has a call {0:?}")]
    UnknownCall(String),
    /// It decides nothing.
    #[error("names no call")]
    NoCall,
    /// The same call under the same conditions was named before.
    #[error("{call} was named under the same conditions in {earlier}")]
    Duplicate {
        /// The call.
        call: String,
        /// Where it is decided.
        earlier: Place,
    },
    /// An earlier entry without conditions leaves nothing to decide.
    #[error("{call} is always decided in {earlier}")]
    Shadowed {
        /// The call.
        call: String,
        /// Where it is decided.
        earlier: Place,
    },
    /// A compare of more or less than the kernel reads.
    #[error("argument {arg} of {call} has to be compared as {needed:?}")]
    WrongWidth {
        /// The call.
        call: String,
        /// The argument, from 0.
        arg: u8,
        /// The width the kernel reads.
        needed: Width,
    },
    /// Nobody could tell later whether it may go.
    #[error("gives no reason")]
    NoReason,
    /// Its callers fall back on `ENOSYS` and give up on `EPERM`.
    #[error("{0} must not fail with EPERM")]
    Eperm(String),
}

/// Every trap in `rules`, in file order.
pub fn lint(rules: &Rules) -> Vec<Finding> {
    let entries = placed(rules);
    let mut findings = Vec::new();
    for (index, (place, entry)) in entries.iter().enumerate() {
        let earlier = entries.get(..index).unwrap_or_default();
        let traps = alone(entry)
            .into_iter()
            .chain(repeated(entry, place))
            .chain(entry.names().filter_map(|call| hidden(entry, call, earlier)));
        findings.extend(traps.map(|trap| Finding { place: place.clone(), trap }));
    }
    let traps = otherwise(rules).into_iter();
    findings.extend(traps.map(|trap| Finding { place: Place::Otherwise, trap }));
    findings
}

/// Every entry with its place, in file order.
fn placed(rules: &Rules) -> Vec<(Place, &Entry)> {
    let mut placed = Vec::new();
    for layer in &rules.layers {
        for (entry, number) in layer.entries.iter().zip(1..) {
            placed.push((Place::Entry { layer: layer.name.clone(), number }, entry));
        }
    }
    placed
}

/// The traps of one entry that can be seen without the others.
fn alone(entry: &Entry) -> Vec<Trap> {
    let mut traps = Vec::new();
    if entry.names().next().is_none() {
        traps.push(Trap::NoCall);
    }
    if entry.reason.trim().is_empty() {
        traps.push(Trap::NoReason);
    }
    for call in entry.syscalls.iter().filter(|call| !syscalls::is_known(call)) {
        traps.push(Trap::UnknownCall(call.clone()));
    }
    for call in entry.names() {
        if is_eperm(entry.action) && NEVER_EPERM.contains(&call) {
            traps.push(Trap::Eperm(call.to_owned()));
        }
        for (of, arg, needed) in &WIDTHS {
            let mut compared = entry.when.iter().filter(|condition| condition.arg == *arg);
            if *of == call && compared.any(|condition| condition.width != *needed) {
                let call = call.to_owned();
                traps.push(Trap::WrongWidth { call, arg: *arg, needed: *needed });
            }
        }
    }
    traps
}

/// Calls the entry itself names more than once.
fn repeated(entry: &Entry, place: &Place) -> Vec<Trap> {
    let again = |(position, call): (usize, &str)| {
        entry
            .names()
            .take(position)
            .any(|before| before == call)
            .then(|| Trap::Duplicate { call: call.to_owned(), earlier: place.clone() })
    };
    entry.names().enumerate().filter_map(again).collect()
}

/// Why `entry` never gets to decide `call`, if an earlier entry always does.
fn hidden(entry: &Entry, call: &str, earlier: &[(Place, &Entry)]) -> Option<Trap> {
    let (place, by) = earlier.iter().find(|(_, by)| {
        (by.when.is_empty() || by.when == entry.when) && by.names().any(|named| named == call)
    })?;
    let (call, earlier) = (call.to_owned(), place.clone());
    Some(if by.when == entry.when {
        Trap::Duplicate { call, earlier }
    } else {
        Trap::Shadowed { call, earlier }
    })
}

/// The traps of the actions for calls no entry decides.
fn otherwise(rules: &Rules) -> Vec<Trap> {
    let Some(otherwise) = &rules.otherwise else {
        return Vec::new();
    };
    let always_decided = |call: &str| {
        let mut entries = rules.layers.iter().flat_map(|layer| &layer.entries);
        entries.any(|entry| entry.when.is_empty() && entry.names().any(|named| named == call))
    };
    let mut traps = Vec::new();
    if otherwise.reason.trim().is_empty() {
        traps.push(Trap::NoReason);
    }
    if is_eperm(otherwise.known) {
        let open = NEVER_EPERM.into_iter().filter(|call| !always_decided(call));
        traps.extend(open.map(|call| Trap::Eperm(call.to_owned())));
    }
    if is_eperm(otherwise.unknown) {
        traps.push(Trap::Eperm("a call newer than the table".to_owned()));
    }
    traps
}

fn is_eperm(action: Action) -> bool {
    action == Action::Errno(Errno::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(entries: &str) -> Vec<String> {
        let text = format!("[[layer]]\nname = \"a\"\n{entries}");
        lint(&toml::from_str(&text).unwrap()).iter().map(ToString::to_string).collect()
    }

    fn entry(calls: &str, rest: &str) -> String {
        let action = if rest.contains("action") { "" } else { "action = \"allow\"" };
        let reason = if rest.contains("reason") { "" } else { "reason = \"sample\"" };
        format!("[[layer.entry]]\nsyscalls = {calls}\n{action}\n{reason}\n{rest}\n")
    }

    const ZERO: &str = "when = [{ arg = 0, width = 32, eq = 0 }]";
    const ONE: &str = "when = [{ arg = 0, width = 32, eq = 1 }]";
    const EPERM: &str = "action = { errno = \"EPERM\" }";

    #[test]
    fn a_sound_layer_has_no_findings() {
        let sound = [
            entry("[\"personality\"]", ZERO),
            entry("[\"personality\"]", ONE),
            entry("[\"personality\"]", EPERM),
            entry("[\"open\", \"read\"]", "optional = [\"not_yet_a_call\"]"),
            entry("[]", "optional = [\"another_one\"]"),
        ];
        assert_eq!(findings(&sound.concat()), Vec::<String>::new());
    }

    #[test]
    fn every_trap_in_an_entry_is_found() {
        let wide = "when = [{ arg = 1, width = 64, eq = 0x5412 }]";
        let narrow = "when = [{ arg = 0, width = 32, mask = 0x80, eq = 0 }]";
        let table = [
            (entry("[\"opne\"]", ""), "no architecture has a call \"opne\""),
            (entry("[]", ""), "names no call"),
            (entry("[\"read\"]", "reason = \" \""), "gives no reason"),
            (
                entry("[\"read\", \"read\"]", ""),
                "read was named under the same conditions in layer \"a\", entry 1",
            ),
            (entry("[\"ioctl\"]", wide), "argument 1 of ioctl has to be compared as Bits32"),
            (entry("[\"socket\"]", wide), "argument 1 of socket has to be compared as Bits32"),
            (entry("[\"clone\"]", narrow), "argument 0 of clone has to be compared as Bits64"),
            (entry("[\"clone3\"]", EPERM), "clone3 must not fail with EPERM"),
            (
                entry("[]", &format!("optional = [\"copy_file_range\"]\n{EPERM}")),
                "copy_file_range must not fail with EPERM",
            ),
        ];
        for (text, want) in table {
            assert_eq!(findings(&text), [format!("layer \"a\", entry 1: {want}")], "{text}");
        }
    }

    #[test]
    fn an_entry_that_can_never_decide_is_found() {
        let always = entry("[\"personality\"]", "");
        let zero = entry("[\"personality\"]", ZERO);
        let shadowed =
            "layer \"a\", entry 2: personality is always decided in layer \"a\", entry 1";
        let duplicate = "layer \"a\", entry 2: personality was named under the same conditions in layer \"a\", entry 1";
        for (text, want) in [
            ([always.clone(), zero.clone()], vec![shadowed]),
            ([always.clone(), always.clone()], vec![duplicate]),
            ([zero.clone(), zero.clone()], vec![duplicate]),
            ([zero, always], vec![]),
        ] {
            assert_eq!(findings(&text.concat()), want, "{text:?}");
        }
    }

    #[test]
    fn an_entry_of_another_layer_hides_too() {
        let entry = entry("[\"read\"]", "");
        let second = format!("{entry}[[layer]]\nname = \"b\"\n{entry}");
        let want = "layer \"b\", entry 1: read was named under the same conditions in layer \"a\", entry 1";
        assert_eq!(findings(&second), [want]);
    }

    #[test]
    fn the_traps_of_otherwise_are_found() {
        let text = "[otherwise]\nknown = { errno = \"EPERM\" }\nunknown = { errno = \"EPERM\" }\n";
        let decided = entry("[\"clone3\"]", "action = { errno = \"ENOSYS\" }");
        let rules = toml::from_str(&format!("{text}[[layer]]\nname = \"a\"\n{decided}")).unwrap();
        let traps: Vec<_> = lint(&rules).into_iter().map(|finding| finding.trap).collect();
        let eperm = |call: &str| Trap::Eperm(call.to_owned());
        let want = [Trap::NoReason, eperm("copy_file_range"), eperm("a call newer than the table")];
        assert_eq!(traps, want);
    }
}
