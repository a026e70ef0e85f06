//! Contents of files: `W/files` and `W/tar`.

use std::io::Read;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use hyper::body::Body as _;
use tokio::sync::oneshot;

use super::download::{PieceBody, piece_writer};
use super::transfer::{NamedFile, permit};
use super::upload::{body_reader, feed};
use crate::config::TokenName;
use crate::http::engine::state::EngineState;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::body::check_encoding;
use crate::http::response;
use crate::http::response::file_answer::FileAnswer;
use crate::workspace::files::{open_file, put_file, receive_archive, remove_file, send_archive};
use crate::workspace::{EngineError, WorkspaceService, WorkspaceUse};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};
use cofferdam_tree::files::OpenedFile;

const TAR: HeaderValue = HeaderValue::from_static("application/x-tar");

/// Sends a file or a part of it.
pub async fn get(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_get(&state, &request.into_parts().0).await)
}

async fn try_get(state: &EngineState, head: &Parts) -> Result<Response, HttpError> {
    let NamedFile { id, path, .. } = NamedFile::of(&head.uri, &[])?;
    let owner = token_name(&head.extensions);
    let permit = permit(state)?;
    let opened =
        state.run_blocking(move |service| Ok(open_file(&service.enter(&owner, &id)?, &path)?));
    let OpenedFile { file, bytes, tag, .. } = opened.await?;
    let media_type = "application/octet-stream".to_owned();
    FileAnswer { file, bytes, sha256: tag, media_type, headers: Vec::new() }.respond(head, permit)
}

/// Removes a file.
pub async fn delete(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let named = NamedFile::of(request.uri(), &["recursive"]).and_then(|named| {
        let recursive = named.params.flag("recursive")?;
        Ok((named, recursive))
    });
    let deleted = match named {
        Ok((NamedFile { id, path, .. }, recursive)) => {
            let delete = state.run_blocking(move |service| {
                Ok(remove_file(&mut service.enter(&owner, &id)?, &path, recursive)?)
            });
            delete.await.map(|()| empty(StatusCode::NO_CONTENT))
        }
        Err(error) => Err(error.into()),
    };
    state.respond(deleted)
}

/// Writes a file from the request's body.
pub async fn put(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_put(&state, request).await)
}

async fn try_put(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let named = NamedFile::of(&head.uri, &["mode"])?;
    let mode = octal(named.params.get("mode"))?;
    let bytes = body.size_hint().exact();
    let write = move |used: &mut WorkspaceUse, source: &mut dyn Read| {
        put_file(used, &named.path, mode, bytes, source)
    };
    let (view, is_new) = receive(state, &head, named.id, body, write).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(response::json(status, &view))
}

/// Unpacks the archive in the request's body.
pub async fn put_tar(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_put_tar(&state, request).await)
}

async fn try_put_tar(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let named = NamedFile::of(&head.uri, &[])?;
    let write = move |used: &mut WorkspaceUse, source: &mut dyn Read| {
        receive_archive(used, &named.path, source)
    };
    let written = receive(state, &head, named.id, body, write).await?;
    Ok(response::json(StatusCode::OK, &written))
}

/// Calls `write` on a thread of its own with the body as its source.
pub async fn receive<T: Send + 'static>(
    state: &EngineState,
    head: &Parts,
    id: String,
    body: Body,
    write: impl FnOnce(&mut WorkspaceUse, &mut dyn Read) -> Result<T, EngineError> + Send + 'static,
) -> Result<T, HttpError> {
    let write = move |service: &WorkspaceService, owner: &TokenName, source: &mut dyn Read| {
        write(&mut service.enter(owner, &id)?, source)
    };
    receive_in(state, head, body, write).await
}

/// As [`receive`], in the service.
pub async fn receive_in<T: Send + 'static>(
    state: &EngineState,
    head: &Parts,
    body: Body,
    write: impl FnOnce(&WorkspaceService, &TokenName, &mut dyn Read) -> Result<T, EngineError>
    + Send
    + 'static,
) -> Result<T, HttpError> {
    check_encoding(&head.headers)?;
    let permit = permit(state)?;
    let (service, owner) = (Arc::clone(state.service()), token_name(&head.extensions));
    let (sender, result) = oneshot::channel();
    let (pieces, mut source) = body_reader();
    let request_id = RequestId::current();
    let work = move || {
        let written = on_behalf_of(request_id, || {
            write(&service, &owner, &mut source).map_err(HttpError::Engine)
        });
        drop(permit);
        // The receiver is gone if the client has disconnected.
        drop(sender.send(written));
    };
    state.transfer_threads.start(work).map_err(|_| HttpError::Internal)?;
    feed(body, state.limits.bodies.within, pieces, result).await
}

/// Sends a tree as an archive.
pub async fn get_tar(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_get_tar(&state, &request.into_parts().0).await)
}

async fn try_get_tar(state: &EngineState, head: &Parts) -> Result<Response, HttpError> {
    let NamedFile { id, path, .. } = NamedFile::of(&head.uri, &[])?;
    let permit = permit(state)?;
    let (service, owner) = (Arc::clone(state.service()), token_name(&head.extensions));
    let (mut writer, pieces) = piece_writer();
    let request_id = RequestId::current();
    let work = move || {
        on_behalf_of(request_id, || {
            let used = service.enter(&owner, &id);
            let sent = used.and_then(|used| send_archive(&used, &path, &mut writer));
            writer.finish(sent.map_err(HttpError::Engine));
        });
    };
    state.transfer_threads.start(work).map_err(|_| HttpError::Internal)?;
    let body = PieceBody::begin(pieces, permit).await?;
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, TAR);
    Ok(response)
}

/// The permissions that a query names in octal digits.
fn octal(text: Option<&str>) -> Result<u32, EngineError> {
    let Some(text) = text else { return Ok(0) };
    let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = is_octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| EngineError::invalid("mode", "want permissions up to 0777, in octal digits"))
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal_and_has_permissions_only() {
        for (text, mode) in [("0755", Some(0o755)), ("644", Some(0o644)), ("0", Some(0))] {
            assert_eq!(octal(Some(text)).ok(), mode, "{text}");
        }
        for text in ["", "0o755", "888", "+7", "1777", "4755", "77777777777"] {
            assert!(octal(Some(text)).is_err(), "{text}");
        }
        assert_eq!(octal(None), Ok(0));
    }
}
