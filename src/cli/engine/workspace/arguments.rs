//! The command line of a verb, made from its keys.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, value_parser};
use serde_json::Value;

use super::verb::{KeyForm, KeyKind, VerbAction, VerbKey, WorkspaceVerb};
use crate::cli::options::value_parsers::{BadValue, duration, variable};
use crate::cli::remote::server_options::ServerOptions;
use cofferdam_core::values::bytes::parse_bytes;

/// The command of `verb`.
pub fn command_of(verb: &'static WorkspaceVerb) -> Command {
    let args = verb.keys.iter().copied().flatten().map(argument);
    let examples = verb.examples.replace('\n', "\n  ");
    let examples = format!("Examples:\n  {examples}");
    let command = ServerOptions::augment_args(Command::new(verb.name).args(args));
    // The directory that a digest takes the place of stands before a word that is required.
    let command = command.allow_missing_positional(verb.action == VerbAction::Upload);
    command.about(verb.about).after_help(examples)
}

fn argument(key: &'static VerbKey) -> Arg {
    let arg = Arg::new(key.name).help(key.help);
    let arg = match (key.form, key.unless) {
        (KeyForm::Option, other) => arg.long(key.name).conflicts_with_all(other),
        (KeyForm::Word, None) => arg.required(true),
        (KeyForm::Word, Some(other)) => arg.required_unless_present(other).conflicts_with(other),
        (KeyForm::WordOr(default), _) => arg.default_value(default),
    };
    let arg = arg.value_name(value_name(key));
    match key.kind {
        KeyKind::Text | KeyKind::Texts => arg.value_parser(text),
        KeyKind::Id => arg.value_parser(id),
        KeyKind::Count => arg.value_parser(count),
        KeyKind::Integer => arg.value_parser(integer).allow_negative_numbers(true),
        KeyKind::Bytes => arg.value_parser(bytes),
        KeyKind::Millis => arg.value_parser(millis),
        KeyKind::Boolean => arg
            .value_parser(boolean)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        KeyKind::Variables => arg.value_parser(variable),
        KeyKind::Command => arg.value_parser(text).last(true).num_args(1..),
        KeyKind::JsonFile | KeyKind::BytesFile | KeyKind::Upload => {
            arg.value_parser(value_parser!(PathBuf))
        }
        KeyKind::Flag | KeyKind::One => return arg.action(ArgAction::SetTrue),
    }
    .action(if is_repeated(key.kind) { ArgAction::Append } else { ArgAction::Set })
}

fn is_repeated(kind: KeyKind) -> bool {
    matches!(kind, KeyKind::Variables | KeyKind::Texts | KeyKind::Command)
}

fn value_name(key: &VerbKey) -> &'static str {
    match (key.form, key.kind) {
        (KeyForm::Word | KeyForm::WordOr(_), _) => match key.name {
            "id" => "ID",
            "session" => "SESSION",
            "snapshot" => "SNAPSHOT",
            "pid" => "PID",
            "signal" => "SIGNAL",
            "file" => "FILE",
            "path" => "PATH",
            "from" => "FROM",
            "to" => "TO",
            "dir" => "DIR",
            "pattern" => "PATTERN",
            "cmd" => "CMD",
            _ => "DATA",
        },
        (_, KeyKind::Id) => "ID",
        (_, KeyKind::Count | KeyKind::Integer) => "N",
        (_, KeyKind::Bytes) => "BYTES",
        (_, KeyKind::Millis) => "MS",
        (_, KeyKind::Boolean) => "BOOL",
        (_, KeyKind::Variables) => "KEY=VALUE",
        (_, KeyKind::JsonFile | KeyKind::BytesFile | KeyKind::Upload) => "FILE",
        _ => "TEXT",
    }
}

fn text(text: &str) -> Result<Value, BadValue> {
    Ok(text.into())
}

fn id(text: &str) -> Result<Value, &'static str> {
    if text.is_empty() { Err("want a name that is not empty") } else { Ok(text.into()) }
}

fn count(text: &str) -> Result<Value, &'static str> {
    let count = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok());
    count.flatten().map(Value::from).ok_or("want a whole number from 0")
}

fn integer(text: &str) -> Result<Value, &'static str> {
    text.parse::<i64>().map(Value::from).map_err(|_| "want a whole number")
}

fn bytes(text: &str) -> Result<Value, BadValue> {
    parse_bytes(text).map(Value::from).map_err(|_| BadValue::Bytes)
}

fn millis(text: &str) -> Result<Value, &'static str> {
    let with_unit = || {
        let duration = duration(text).ok()?;
        u64::try_from(duration.as_millis()).ok().map(Value::from)
    };
    let millis = count(text).ok().or_else(with_unit);
    millis.ok_or("want milliseconds, or a number and a unit, as 500ms, 30s or 2m")
}

fn boolean(text: &str) -> Result<Value, &'static str> {
    text.parse::<bool>().map(Value::from).map_err(|_| "want true or false")
}

/// What was given for `key`; flags that were not given are absent.
pub fn given(key: &VerbKey, matches: &ArgMatches) -> Vec<Value> {
    let values = |matches: &ArgMatches| {
        let values = matches.get_many::<Value>(key.name);
        values.map(|values| values.cloned().collect()).unwrap_or_default()
    };
    match key.kind {
        KeyKind::Flag | KeyKind::One => match (matches.get_flag(key.name), key.kind) {
            (true, KeyKind::Flag) => vec![true.into()],
            (true, _) => vec![1.into()],
            (false, _) => Vec::new(),
        },
        KeyKind::Variables => match matches.get_many::<(String, String)>(key.name) {
            Some(variables) => vec![variables.cloned().collect::<Value>()],
            None => Vec::new(),
        },
        KeyKind::JsonFile | KeyKind::BytesFile | KeyKind::Upload => Vec::new(),
        _ => values(matches),
    }
}

/// The file that was given for `key`.
pub fn given_file<'a>(key: &VerbKey, matches: &'a ArgMatches) -> Option<&'a PathBuf> {
    matches.get_one::<PathBuf>(key.name)
}
