//! Chains of wrappers, made up at random.

use proptest::prelude::*;
use serde_json::json;

use crate::policy::testing::{judged, request, verdict};
use crate::policy::wrapper_table::{LOADER, MACHINES, Operand, Then, WRAPPERS, Wrapper};
use cofferdam_core::job::{AllowedCommand, RunJobRequest};

/// Words by which the usual programs have a shell.
const SHELLS: [&str; 9] = [
    "sh",
    "bash",
    "foo",
    "ash",
    "/bin/sh",
    "/usr/bin/bash",
    "/usr/local/bin/foo",
    "busybox",
    "/workspace/bash",
];

fn every_row() -> impl Iterator<Item = &'static Wrapper> {
    WRAPPERS.iter().chain([&LOADER])
}

/// Everything is on the list: what is denied is denied for being a shell.
fn lists_everything(mut request: RunJobRequest) -> RunJobRequest {
    let names = every_row().flat_map(|row| row.names).chain(&SHELLS);
    let entry = |name: &str| match name.starts_with('/') {
        true => AllowedCommand { basename: None, path: Some(name.to_owned()), sha256: None },
        false => AllowedCommand::named(name),
    };
    request.policy.allowed_commands = names.copied().chain(["wrap"]).map(entry).collect();
    request.policy.allowed_env = vec!["A".to_owned(), "PATH".to_owned()];
    request
}

/// One option of `row`, or one that it does not have.
fn option(row: &'static Wrapper) -> BoxedStrategy<Vec<String>> {
    let value = "[a-z0-9=/.-]{0,4}";
    let mut options: Vec<BoxedStrategy<Vec<String>>> = vec![
        Just(vec!["--".to_owned()]).boxed(),
        Just(vec!["-".to_owned()]).boxed(),
        "-[a-zA-Z0-9]{1,3}"
            .prop_filter("one that takes the shell for its value", |option| {
                !takes_more(row, option)
            })
            .prop_map(|option| vec![option])
            .boxed(),
    ];
    for long in row.long.split(' ').filter(|long| !long.is_empty()) {
        let name = format!("--{}", long.trim_end_matches('='));
        options.push(match long.ends_with('=') {
            false => Just(vec![name]).boxed(),
            true => (value, any::<bool>())
                .prop_map(move |(value, apart)| match apart {
                    true => vec![name.clone(), value],
                    false => vec![format!("{name}={value}")],
                })
                .boxed(),
        });
    }
    let letters: Vec<char> = row.short.chars().filter(char::is_ascii_alphanumeric).collect();
    for letter in letters {
        let has_value = row.short.contains(&format!("{letter}:"));
        let option = format!("-{letter}");
        options.push(match has_value {
            false => Just(vec![option]).boxed(),
            true => value.prop_map(move |value| vec![option.clone(), value]).boxed(),
        });
    }
    proptest::strategy::Union::new(options).boxed()
}

fn takes_more(row: &Wrapper, option: &str) -> bool {
    option.chars().any(|letter| row.short.contains(&format!("{letter}:")))
}

/// The words of `row` that come before the command.
fn prefix(row: &'static Wrapper) -> impl Strategy<Value = Vec<String>> {
    let name = proptest::sample::select(row.names);
    let path = prop_oneof![3 => Just(""), 1 => Just("/usr/bin/"), 1 => Just("/bin/")];
    let options = proptest::collection::vec(option(row), 0..3);
    let assignments = if row.assigns { 0..3 } else { 0..1 };
    let assignments = proptest::collection::vec(
        proptest::sample::select(&["A=1", "PATH=/usr/bin", "PATH=/x", "="][..]),
        assignments,
    );
    let machine = proptest::sample::select(MACHINES);
    (name, path, options, assignments, machine).prop_map(|(name, path, options, set, machine)| {
        let mut words = vec![format!("{path}{name}")];
        words.extend(options.concat());
        words.extend(set.into_iter().map(str::to_owned));
        words.extend(row.operands.iter().map(|operand| match operand {
            Operand::Any | Operand::Number => "5".to_owned(),
            Operand::Machine => machine.to_owned(),
        }));
        words.extend((row.then == Then::Exec).then(|| "-exec".to_owned()));
        words
    })
}

fn chain() -> impl Strategy<Value = Vec<String>> {
    let rows: Vec<_> = every_row().map(|row| prefix(row).boxed()).collect();
    proptest::collection::vec(proptest::strategy::Union::new(rows), 0..10)
        .prop_map(|prefixes| prefixes.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_chain_of_wrappers_brings_a_shell_past_the_rule(
        mut argv in chain(), shell in proptest::sample::select(&SHELLS[..]),
        arguments in proptest::collection::vec("[a-z;+{}-]{0,3}", 0..3),
    ) {
        argv.push(shell.to_owned());
        argv.extend(arguments);
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let request = lists_everything(request(&words, &json!([])));
        let judged = judged(&request);
        prop_assert_ne!(verdict(&judged), "allowed", "{:?}", argv);
    }

    #[test]
    fn whatever_the_words_are_something_is_decided(
        words in proptest::collection::vec(any::<String>(), 1..12),
        known in proptest::collection::vec(proptest::sample::select(&[
            "env", "-S", "xargs", "-I", "{}", "find", "-exec", ";", "nice", "-5", "--", "-", "é=",
        ][..]), 0..12),
    ) {
        let words = words.iter().map(String::as_str).chain(known);
        let words: Vec<String> = words.map(|word| word.replace('\0', "")).collect();
        let mut request = lists_everything(request(&["x"], &json!([])));
        for start in 0..words.len() {
            request.command.argv = words[start..].to_vec();
            judged(&request);
        }
    }
}
