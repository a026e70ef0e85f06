//! The request that the words and options of a verb mean.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ArgMatches;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::arguments::{given, given_file};
use super::verb::{KeyForm, KeyKind, KeyPlace, VerbKey, WorkspaceVerb};
use crate::cli::failure::{Failure, error_words};
use crate::cli::remote::client::{escaped, escaped_segment};
use crate::cli::stdio::read_input;

/// The longest file that a body holds, bytes: the longest body that a service reads.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// A request of a verb.
#[derive(Debug)]
pub struct VerbRequest {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub path: String,
    /// The body, if the verb has one.
    pub body: Option<Value>,
    /// What is sent instead of the body.
    pub source: Option<PathBuf>,
}

/// A request that is being put together.
#[derive(Debug)]
struct RequestParts {
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    source: Option<PathBuf>,
}

impl VerbRequest {
    /// The request of `verb` with what `matches` hold.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else than is wanted.
    pub fn of(verb: &WorkspaceVerb, matches: &ArgMatches) -> Result<Self, Failure> {
        let keys = || verb.keys.iter().copied().flatten();
        let has_body = keys().any(|key| key.place == KeyPlace::Body);
        let body = has_body.then(|| json!({}));
        let mut parts =
            RequestParts { path: verb.path.to_owned(), query: Vec::new(), body, source: None };
        for key in keys() {
            match key.kind {
                KeyKind::JsonFile | KeyKind::BytesFile | KeyKind::Upload => {
                    if let Some(path) = given_file(key, matches) {
                        parts.take_file(key, path)?;
                    }
                }
                _ => parts.take(key, given(key, matches)),
            }
        }
        Ok(parts.finish(verb.method.clone()))
    }
}

impl RequestParts {
    fn take(&mut self, key: &VerbKey, mut values: Vec<Value>) {
        if values.is_empty() {
            return;
        }
        if key.kind == KeyKind::Command {
            let cmd = values.remove(0);
            self.set("cmd", cmd);
            self.set("args", values.into());
            return;
        }
        let value = match key.kind {
            KeyKind::Texts => values.into(),
            _ => values.swap_remove(0),
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match key.place {
            KeyPlace::Path => {
                let place = format!("{{{}}}", key.key);
                self.path = self.path.replace(&place, &escaped_segment(&text));
            }
            KeyPlace::Query => self.query.push((key.key, text)),
            KeyPlace::Body | KeyPlace::WholeBody(_) | KeyPlace::Source => self.set(key.key, value),
        }
    }

    fn take_file(&mut self, key: &VerbKey, path: &Path) -> Result<(), Failure> {
        if key.kind == KeyKind::Upload {
            self.source = Some(path.to_owned());
            return Ok(());
        }
        let bytes = read(key, path)?;
        if key.kind == KeyKind::BytesFile {
            match String::from_utf8(bytes) {
                Ok(text) => self.set(key.key, text.into()),
                Err(error) => {
                    self.set(key.key, STANDARD.encode(error.as_bytes()).into());
                    self.set("encoding", "base64".into());
                }
            }
            return Ok(());
        }
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| file_failure(key, path, &format!("not JSON: {error}")))?;
        match key.place {
            KeyPlace::WholeBody(other) => {
                let id = self.path.split('/').nth(3).unwrap_or_default();
                self.path = other.replace("{id}", id);
                self.body = Some(value);
            }
            // The file may hold the whole body, too.
            _ => match value {
                Value::Object(body) if body.contains_key(key.key) => {
                    body.into_iter().for_each(|(key, value)| self.set(&key, value));
                }
                value => self.set(key.key, value),
            },
        }
        Ok(())
    }

    /// Sets the nested key `key` of the body.
    fn set(&mut self, key: &str, value: Value) {
        let mut place = self.body.get_or_insert_default();
        for part in key.split('.') {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[part];
        }
        *place = value;
    }

    fn finish(self, method: Method) -> VerbRequest {
        let Self { mut path, query, body, source } = self;
        for (index, (key, value)) in query.into_iter().enumerate() {
            path.push(if index == 0 { '?' } else { '&' });
            path.push_str(&format!("{key}={}", escaped(&value, b"/")));
        }
        VerbRequest { method, path, body, source }
    }
}

fn read(key: &VerbKey, path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = read_input(path, FILE_BYTES_MAX)
        .map_err(|error| file_failure(key, path, &error_words(&error)))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(file_failure(key, path, &format!("more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn file_failure(key: &VerbKey, path: &Path, words: &str) -> Failure {
    let option = match key.form {
        KeyForm::Option => format!("--{}", key.name),
        _ => key.name.to_uppercase(),
    };
    Failure::option(&option, format!("{}: {words}", path.display()))
}
