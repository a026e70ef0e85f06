//! `workspace.yaml`: parsed with bounds on what anchors may repeat, and with the line of each value.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::{Error, Options, Spanned, budget, options};

use super::error::TaskError;

/// The name of the description of a task.
pub const DESCRIPTION: &str = "workspace.yaml";
/// The longest description, bytes.
pub const DESCRIPTION_BYTES_MAX: u64 = 256 * 1024;
/// How often anchors may be repeated: together with the size, what they may add up to.
const ALIASES_MAX: usize = 64;
const REPEATED_EVENTS_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 50_000;

/// A value and its line, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lined<T> {
    /// The value.
    pub value: T,
    /// Its line.
    pub line: u64,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lined<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, line: spanned.referenced.line() })
    }
}

/// A value as YAML gives it; `null` is `None`.
type Field<T> = Option<Lined<T>>;

/// `workspace.yaml` as written; see [`Task`](super::Task) for the meaning of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// A URL, or an absolute path.
    pub repo: Field<String>,
    /// A directory of the task.
    pub files: Field<String>,
    /// A branch or tag.
    pub version: Field<String>,
    /// A commit, branch or tag.
    pub base_commit: Field<String>,
    /// The programming language.
    pub language: Field<String>,
    /// Commands.
    pub install: Vec<Lined<String>>,
    /// `fail` or `continue`.
    pub on_install_failure: Field<String>,
    /// Variables.
    pub env: BTreeMap<String, Lined<String>>,
    /// Seconds.
    pub test_timeout_secs: Field<u64>,
    /// Commands.
    pub fail_to_pass: Vec<Lined<String>>,
    /// Commands.
    pub pass_to_pass: Vec<Lined<String>>,
    /// Patterns.
    pub verify: DescribedVerify,
    /// An absolute path.
    pub workdir: Field<String>,
    /// Unknown keys: their names and lines.
    pub unknown: Vec<Lined<String>>,
}

/// The key `verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescribedVerify {
    /// Patterns.
    pub restore: Vec<Lined<String>>,
    /// Patterns.
    pub keep: Vec<Lined<String>>,
    /// Unknown keys.
    pub unknown: Vec<Lined<String>>,
}

/// Parses a description.
///
/// # Errors
/// [`TaskError::Invalid`] with the field and the line.
pub fn parse_description(bytes: &[u8]) -> Result<Description, TaskError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| TaskError::file(DESCRIPTION, "it is not UTF-8 text"))?;
    if bytes.len() as u64 > DESCRIPTION_BYTES_MAX {
        let reason = format!("it is longer than {DESCRIPTION_BYTES_MAX} bytes");
        return Err(TaskError::file(DESCRIPTION, reason));
    }
    let mut field = None;
    let parsed = serde_saphyr::with_deserializer_from_str_with_options(
        text,
        bounded_options(),
        |deserializer| {
            let mut track = serde_path_to_error::Track::new();
            let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
            let parsed = Description::deserialize(tracked);
            if parsed.is_err() {
                field = Some(track.path().to_string()).filter(|path| path != ".");
            }
            parsed
        },
    );
    parsed.map_err(|error| {
        // `Spanned` adds a level of its own.
        let field = field.map(|field| field.trim_end_matches(".value").to_owned());
        let (field, reason) = match error.without_snippet() {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                // The path ends before the key.
                let path = field.unwrap_or_default();
                let parent = path.rsplit_once('.').map(|(parent, _)| format!("{parent}."));
                (Some(parent.unwrap_or_default() + key), "it is there twice".to_owned())
            }
            other => (field, one_line(&other.to_string())),
        };
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        TaskError::Invalid { file: Some(DESCRIPTION.to_owned()), line, field, reason }
    })
}

fn bounded_options() -> Options {
    let mut options = options! {
        budget: budget! {
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_documents: 1,
        },
        with_snippet: false,
    };
    options.alias_limits.max_total_replayed_events = REPEATED_EVENTS_MAX;
    options
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The list of a field, `null` being empty.
fn list<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<Lined<String>>, A::Error> {
    Ok(map.next_value::<Option<Vec<Lined<String>>>>()?.unwrap_or_default())
}

fn unknown<'de, A: MapAccess<'de>>(map: &mut A, key: String) -> Result<Lined<String>, A::Error> {
    let ignored = map.next_value::<Lined<IgnoredAny>>()?;
    Ok(Lined { value: key, line: ignored.line })
}

impl<'de> Deserialize<'de> for Description {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TaskKeys;
        impl<'de> Visitor<'de> for TaskKeys {
            type Value = Description;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of the task's keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Description, A::Error> {
                let mut read = Description::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "repo" => read.repo = map.next_value()?,
                        "files" => read.files = map.next_value()?,
                        "version" => read.version = map.next_value()?,
                        "base_commit" => read.base_commit = map.next_value()?,
                        "language" => read.language = map.next_value()?,
                        "install" => read.install = list(&mut map)?,
                        "on_install_failure" => read.on_install_failure = map.next_value()?,
                        "env" => read.env = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "test_timeout_secs" => read.test_timeout_secs = map.next_value()?,
                        "fail_to_pass" => read.fail_to_pass = list(&mut map)?,
                        "pass_to_pass" => read.pass_to_pass = list(&mut map)?,
                        "verify" => {
                            read.verify = map.next_value::<Option<_>>()?.unwrap_or_default();
                        }
                        "workdir" => read.workdir = map.next_value()?,
                        _ => read.unknown.push(unknown(&mut map, key)?),
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(TaskKeys)
    }
}

impl<'de> Deserialize<'de> for DescribedVerify {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VerifyKeys;
        impl<'de> Visitor<'de> for VerifyKeys {
            type Value = DescribedVerify;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping with `restore` and `keep`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DescribedVerify, A::Error> {
                let mut read = DescribedVerify::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "restore" => read.restore = list(&mut map)?,
                        "keep" => read.keep = list(&mut map)?,
                        _ => read.unknown.push(unknown(&mut map, key)?),
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(VerifyKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (Option<String>, Option<u64>) {
        match parse_description(text.as_bytes()) {
            Err(TaskError::Invalid { field, line, .. }) => (field, line),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn scalars_are_text_as_written() {
        let text = "repo: https://example.com/r\nversion: 2.10\nbase_commit: 0123456\n\
                    env: {A: 1, B: true}\ninstall:\n  - make\n  - 'x: y'\nlanguage:\n";
        let read = parse_description(text.as_bytes()).unwrap();
        assert_eq!(read.version, Some(Lined { value: "2.10".to_owned(), line: 2 }));
        assert_eq!(read.base_commit.unwrap().value, "0123456");
        assert_eq!(read.env["A"].value, "1");
        assert_eq!(read.env["B"].value, "true");
        assert_eq!(read.install[1], Lined { value: "x: y".to_owned(), line: 7 });
        assert_eq!(read.language, None);
    }

    #[test]
    fn a_fault_names_its_field_and_line() {
        for (text, field, line) in [
            ("repo: [a]\n", Some("repo"), 1),
            ("repo: a\ninstall: pip\n", Some("install"), 2),
            ("repo: a\ninstall:\n  - a\n  - [b]\n", Some("install[1]"), 4),
            ("repo: a\nverify:\n  keep: x\n", Some("verify.keep"), 3),
            ("test_timeout_secs: soon\n", Some("test_timeout_secs"), 1),
            ("test_timeout_secs: -1\n", Some("test_timeout_secs"), 1),
            ("env: {A: {B: c}}\n", Some("env.A"), 1),
            ("repo: a\nrepo: b\n", Some("repo"), 2),
            ("verify: {keep: [a], keep: [b]}\n", Some("verify.keep"), 1),
        ] {
            let (found, at) = fault(text);
            assert_eq!((found.as_deref(), at), (field, Some(line)), "{text}");
        }
        for text in ["- a\n", "repo: 'a\n", "a: 1\n---\nb: 2\n", "text"] {
            fault(text);
        }
        assert!(matches!(parse_description(b"repo: \xff"), Err(TaskError::Invalid { .. })));
    }

    #[test]
    fn unknown_keys_are_kept_with_their_lines() {
        let read = parse_description(b"repo: a\nextra: {b: [c]}\nverify: {more: 1}\n").unwrap();
        assert_eq!(read.unknown, [Lined { value: "extra".to_owned(), line: 2 }]);
        assert_eq!(read.verify.unknown, [Lined { value: "more".to_owned(), line: 3 }]);
    }

    #[test]
    fn anchors_cannot_multiply() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let above = format!("*a{}", level - 1);
            let list = vec![above; 10].join(", ");
            text += &format!("a{level}: &a{level} [{list}]\n");
        }
        fault(&text);
        let wide = format!("install: [&a {}{}]\n", "x".repeat(1000), ", *a".repeat(100));
        fault(&wide);
    }
}
