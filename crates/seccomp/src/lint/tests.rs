//! Tests of each mistake that the linter finds.

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
const MASKED: &str = "when = [{ arg = 0, width = 64, mask = 0x7e02_0080, eq = 0 }]";
const EPERM: &str = "action = { errno = \"EPERM\" }";

#[test]
fn a_sound_layer_has_no_findings() {
    let sound = [
        entry("[\"personality\"]", ZERO),
        entry("[\"personality\"]", ONE),
        entry("[\"personality\"]", EPERM),
        entry("[\"clone\"]", MASKED),
        entry("[\"clone\"]", EPERM),
        entry("[\"open\", \"read\"]", "optional = [\"not_yet_a_call\"]"),
        entry("[]", "optional = [\"another_one\"]"),
    ];
    assert_eq!(findings(&sound.concat()), Vec::<String>::new());
}

#[test]
fn every_trap_in_an_entry_is_found() {
    let wide = "when = [{ arg = 1, width = 64, eq = 0x5412 }]";
    let narrow = "when = [{ arg = 0, width = 32, mask = 0x7e02_0080, eq = 0 }]";
    let other = "when = [{ arg = 5, width = 64, eq = 0 }]";
    let mode = "when = [{ arg = 1, width = 32, eq = 0o4755 }]";
    let one_flag = "when = [{ arg = 0, width = 64, mask = 0x1000_0000, eq = 0 }]";
    let wanted = "when = [{ arg = 0, width = 64, mask = 0x7e02_0080, eq = 0x1000_0000 }]";
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
        (entry("[\"socket\"]", other), "argument 5 of socket has no known width"),
        (entry("[\"read\"]", ZERO), "argument 0 of read has no known width"),
        (entry("[\"chmod\"]", mode), "argument 1 of chmod is a mode; only 16 bits of it are read"),
        (entry("[\"clone\"]", ""), "clone is allowed with namespace flags"),
        (entry("[\"clone\"]", one_flag), "clone is allowed with namespace flags"),
        (entry("[\"clone\"]", wanted), "clone is allowed with namespace flags"),
        (entry("[\"clone3\"]", ""), "clone3 is allowed with namespace flags"),
        (entry("[\"unshare\"]", ""), "unshare is allowed with namespace flags"),
        (entry("[\"setns\"]", ""), "setns is allowed with namespace flags"),
        (entry("[\"clone3\"]", EPERM), "clone3 must not fail with EPERM"),
        (
            entry("[\"setuid\"]", "action = \"succeed\""),
            "setuid must not succeed without being executed",
        ),
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
fn a_layer_that_does_not_always_apply_hides_no_other() {
    let layer = |name: &str, unless: &str, rest: &str| {
        format!("[[layer]]\nname = {name:?}\n{unless}\n{}", entry("[\"fsync\"]", rest))
    };
    let found = |text: String| lint(&toml::from_str(&text).unwrap()).len();
    let unless = "unless = \"writable_binds\"";
    let pretended = layer("a", unless, "action = \"succeed\"");
    assert_eq!(found(pretended.clone() + &layer("b", "", "")), 0);
    assert_eq!(found(pretended + &layer("b", unless, "")), 1);
    assert_eq!(found(layer("a", "", "") + &layer("b", unless, "")), 1);
}

#[test]
fn an_entry_that_can_never_decide_is_found() {
    let when = |conditions: &str| entry("[\"socket\"]", &format!("when = [{conditions}]"));
    let always = entry("[\"socket\"]", "");
    let family = "{ arg = 0, width = 32, one_of = [1, 2] }";
    let kind = "{ arg = 1, width = 32, mask = 0xf, one_of = [1, 2] }";
    let [one, both] = [when("{ arg = 0, width = 32, eq = 1 }"), when(family)];
    let narrower = when(&format!("{family}, {kind}"));
    let [low, all] = [when(kind), when("{ arg = 1, width = 32, eq = 0x802 }")];
    let three = when("{ arg = 0, width = 32, eq = 3 }");
    let shadowed = "layer \"a\", entry 2: socket is always decided in layer \"a\", entry 1";
    let duplicate =
        "layer \"a\", entry 2: socket was named under the same conditions in layer \"a\", entry 1";
    for (first, second, want) in [
        (&always, &one, Some(shadowed)),
        (&always, &always, Some(duplicate)),
        (&one, &one, Some(duplicate)),
        (&both, &one, Some(shadowed)),
        (&both, &narrower, Some(shadowed)),
        (&low, &all, Some(shadowed)),
        (&one, &always, None),
        (&one, &both, None),
        (&narrower, &both, None),
        (&all, &low, None),
        (&both, &three, None),
        (&both, &low, None),
    ] {
        let text = format!("{first}{second}");
        assert_eq!(findings(&text), want.as_slice(), "{text}");
    }
}

#[test]
fn an_empty_layer_and_a_duplicate_layer_name_are_found() {
    let read = entry("[\"read\"]", "");
    let empty = format!("{read}[[layer]]\nname = \"b\"\n");
    assert_eq!(findings(&empty), ["layer \"b\": has no entry"]);
    let twice = format!("{read}[[layer]]\nname = \"a\"\n{}", entry("[\"write\"]", ""));
    assert_eq!(findings(&twice), ["layer \"a\": another layer has this name"]);
}

#[test]
fn an_entry_of_another_layer_hides_too() {
    let entry = entry("[\"read\"]", "");
    let second = format!("{entry}[[layer]]\nname = \"b\"\n{entry}");
    let want =
        "layer \"b\", entry 1: read was named under the same conditions in layer \"a\", entry 1";
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

fn otherwise_traps(known: &str, unknown: &str, entries: &str) -> Vec<Trap> {
    let text = format!("[otherwise]\nknown = {known}\nunknown = {unknown}\nreason = \"sample\"\n");
    let rules = toml::from_str(&format!("{text}[[layer]]\nname = \"a\"\n{entries}")).unwrap();
    lint(&rules).into_iter().map(|finding| finding.trap).collect()
}

#[test]
fn allowing_all_other_calls_must_not_allow_namespaces() {
    let read = entry("[\"read\"]", "");
    let left = ["clone", "clone3", "setns", "unshare"].map(|call| Trap::Unmasked(call.to_owned()));
    assert_eq!(otherwise_traps("\"allow\"", "\"allow\"", &read), left);
    let refused = entry("[\"clone\", \"unshare\", \"setns\"]", EPERM)
        + &entry("[\"clone3\"]", "action = { errno = \"ENOSYS\" }");
    assert_eq!(otherwise_traps("\"allow\"", "\"allow\"", &refused), []);
}

#[test]
fn an_otherwise_action_that_never_applies_is_found() {
    let mut names: Vec<&str> = syscalls::names().collect();
    names.sort_unstable();
    names.dedup();
    let absent = "{ errno = \"ENOSYS\" }";
    let all = entry(&format!("{names:?}"), &format!("action = {absent}"));
    assert_eq!(otherwise_traps(absent, absent, &all), [Trap::NeverAsked]);
    let all_but_one = entry(&format!("{:?}", &names[1..]), &format!("action = {absent}"));
    assert_eq!(otherwise_traps(absent, absent, &all_but_one), []);
}
