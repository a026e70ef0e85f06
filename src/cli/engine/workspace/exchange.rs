//! Requests of verbs with one answer.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::Value;
use ureq::SendBody;
use ureq::http::Method;

use super::local_tree::LocalTree;
use super::request::VerbRequest;
use crate::cli::engine::failure::EngineFailure;
use crate::cli::engine::output::{print_bytes, print_document};
use crate::cli::failure::{Failure, error_words};
use crate::cli::remote::client::{ServerClient, escaped};

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
/// The time limit of a request without a file: longer than any wait that it can ask for.
const CALL_MAX: Duration = Duration::from_secs(180);
/// The time limit of sending a file or a directory.
const UPLOAD_MAX: Duration = Duration::from_secs(3600);
/// What a directory at the service begins with.
const AT_SERVICE: &str = "host://";

/// Sends `request`, and prints the answer as a line of JSON.
pub fn exchange(client: &ServerClient, request: VerbRequest) -> Result<(), EngineFailure> {
    let VerbRequest { method, path, body, source } = request;
    let answer = match source {
        Some(source) => upload(client, method, path, body, &source)?,
        None => {
            let body = body.map(|body| body.to_string());
            send_json(client, method, &path, body.as_deref())?
        }
    };
    print_answer(client, answer)
}

/// Prints the bytes that answer `request`.
pub fn download(client: &ServerClient, request: &VerbRequest) -> Result<(), EngineFailure> {
    let mut contents = client.download(&request.path)?;
    print_bytes(&mut contents, |_| {})?;
    Ok(())
}

fn send_json(
    client: &ServerClient,
    method: Method,
    path: &str,
    body: Option<&str>,
) -> Result<Vec<u8>, EngineFailure> {
    Ok(match body {
        Some(body) => client.send(method, path, JSON, body.as_bytes(), CALL_MAX)?,
        None if method == Method::POST => client.send(method, path, BYTES, &[][..], CALL_MAX)?,
        None => client.ask(method, path, CALL_MAX)?,
    })
}

/// Sends the file `source`, or the directory with the keys of `body` in the query.
fn upload(
    client: &ServerClient,
    method: Method,
    mut path: String,
    body: Option<Value>,
    source: &Path,
) -> Result<Vec<u8>, EngineFailure> {
    let Some(mut body) = body else {
        return send_file(client, method, &path, source);
    };
    if let Some(at_service) = source.to_str().filter(|source| source.starts_with(AT_SERVICE)) {
        body["src"] = at_service.into();
        return send_json(client, method, &path, Some(&body.to_string()));
    }
    for (key, value) in body.as_object().into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(&format!("{key}={}", escaped(&text, b"/")));
    }
    let mut tree = LocalTree::pack(source)?;
    let body = SendBody::from_reader(&mut tree);
    let sent = client.send(method, &path, "application/x-tar", body, UPLOAD_MAX);
    // The reason that the archive is incomplete says more than that the request broke off.
    tree.finish()?;
    Ok(sent?)
}

/// Sends the file `source`, or stdin.
fn send_file(
    client: &ServerClient,
    method: Method,
    path: &str,
    source: &Path,
) -> Result<Vec<u8>, EngineFailure> {
    if source == Path::new("-") {
        let mut stdin = io::stdin().lock();
        let body = SendBody::from_reader(&mut stdin);
        return Ok(client.send(method, path, BYTES, body, UPLOAD_MAX)?);
    }
    let failed = |words: &str| Failure::option("FILE", format!("{}: {words}", source.display()));
    let file = File::open(source).map_err(|error| failed(&error_words(&error)))?;
    if !file.metadata().is_ok_and(|file| file.is_file()) {
        return Err(failed("not a regular file").into());
    }
    Ok(client.send(method, path, BYTES, file, UPLOAD_MAX)?)
}

/// Prints `answer` as it is. An empty one is an empty object.
fn print_answer(client: &ServerClient, answer: Vec<u8>) -> Result<(), EngineFailure> {
    if answer.is_empty() {
        return Ok(print_document("{}")?);
    }
    let unexpected = |words: &str| EngineFailure::from(client.unexpected(words));
    let text = String::from_utf8(answer).map_err(|_| unexpected("an answer that is not text"))?;
    let text = text.trim_end();
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| unexpected(&error.to_string()))?;
    // Outside of strings, which contain no line ends, they mean nothing.
    Ok(print_document(&text.replace(['\n', '\r'], " "))?)
}
