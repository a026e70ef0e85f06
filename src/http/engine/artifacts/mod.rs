//! `/v1/artifacts` and `/v1/artifact-versions`: artifacts for HTTP clients.

mod receive;
pub(crate) mod state;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hyper::body::Body as _;
use serde::Serialize;

use self::receive::receive;
use self::state::ArtifactsState;
use super::idempotency::RequestKey;
use super::kept_answers::KeptAnswer;
use super::page::PageQuery;
use super::query::QueryParams;
use crate::http::error::{HttpApi, HttpError};
use crate::http::request::access::token_name;
use crate::http::request::body::check_encoding;
use crate::http::request::percent_decode;
use crate::http::response;
use crate::http::response::file_answer::FileAnswer;
use crate::workspace::EngineError;
use crate::workspace::artifacts::{ArtifactKey, ArtifactScope, ArtifactSummary};

const ARTIFACTS: &str = "/v1/artifacts/";
const VERSIONS: &str = "/v1/artifact-versions/";
/// The parameters that name a session.
const SESSION: [&str; 3] = ["app", "user", "session"];
/// The version of the artifact in the response.
const ARTIFACT_VERSION: HeaderName = HeaderName::from_static("x-artifact-version");
/// The media type of a version that was saved without one.
const MEDIA_TYPE: &str = "application/octet-stream";

/// Builds the routes.
pub fn routes<S>(state: Arc<ArtifactsState>) -> Router<S> {
    Router::new()
        .route("/v1/artifacts", get(list))
        .route("/v1/artifacts/{*name}", get(load).post(save).delete(remove))
        .route("/v1/artifact-versions/{*name}", get(versions))
        .with_state(state)
}

fn respond(answer: Result<Response, HttpError>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.answer(HttpApi::Jobs))
}

/// Saves the body as the next version.
async fn save(State(state): State<Arc<ArtifactsState>>, request: Request) -> Response {
    respond(try_save(&state, request).await)
}

async fn try_save(state: &ArtifactsState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    check_encoding(&head.headers)?;
    let (key, _) = named(&head, ARTIFACTS, &[])?;
    let media_type = media_type(&head.headers)?;
    let request_key = RequestKey::of(&head)?;
    // A client that waits for `100 Continue` sends none of a body that is too long.
    let announced = body.size_hint().lower();
    let _permit = state.upload_permit().await?;
    let upload = state.run_blocking(move |artifacts| {
        Ok(artifacts.store_for_save()?.upload(key, &media_type, announced)?)
    });
    let upload = receive(state, body, upload.await?).await?;
    let answers = state.answers.clone();
    let saved = state.run_blocking(move |_| {
        let sealed = upload.seal()?;
        let content = format!("{} {}", sealed.sha256(), sealed.mime_type());
        request_key.once(&answers, content.as_bytes(), || {
            Ok(KeptAnswer::json(StatusCode::CREATED, &sealed.publish()?))
        })
    });
    Ok(saved.await?.into_response())
}

/// The value of `Content-Type`.
fn media_type(headers: &HeaderMap) -> Result<String, EngineError> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(MEDIA_TYPE.to_owned()),
        (Some(value), None) => value
            .to_str()
            .map(str::to_owned)
            .map_err(|_| EngineError::invalid("Content-Type", "want printable ASCII")),
        (Some(_), Some(_)) => Err(EngineError::invalid("Content-Type", "there twice")),
    }
}

/// Sends a version or a part of it.
async fn load(State(state): State<Arc<ArtifactsState>>, request: Request) -> Response {
    respond(try_load(&state, &request.into_parts().0).await)
}

async fn try_load(state: &ArtifactsState, head: &Parts) -> Result<Response, HttpError> {
    let (key, params) = named(head, ARTIFACTS, &["version"])?;
    let version = params.get("version").map(version).transpose()?;
    let permit = state.download_permit()?;
    let opened = state
        .run_blocking(move |artifacts| Ok(artifacts.store()?.open_version(&key, version)?))
        .await?;
    let answer = FileAnswer {
        file: opened.file,
        bytes: opened.size_bytes,
        sha256: opened.sha256,
        media_type: opened.mime_type,
        headers: vec![(ARTIFACT_VERSION, HeaderValue::from(opened.version))],
    };
    answer.respond(head, permit)
}

fn version(text: &str) -> Result<u64, EngineError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let version = is_number.then(|| text.parse().ok()).flatten();
    version.ok_or_else(|| EngineError::invalid("version", "want a whole number from 0"))
}

/// Deletes every version.
async fn remove(State(state): State<Arc<ArtifactsState>>, request: Request) -> Response {
    respond(try_remove(&state, &request.into_parts().0).await)
}

async fn try_remove(state: &ArtifactsState, head: &Parts) -> Result<Response, HttpError> {
    let (key, _) = named(head, ARTIFACTS, &[])?;
    let removed = state.run_blocking(move |artifacts| Ok(artifacts.store()?.delete(&key)?));
    removed.await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Lists the versions of an artifact.
async fn versions(State(state): State<Arc<ArtifactsState>>, request: Request) -> Response {
    respond(try_versions(&state, &request.into_parts().0).await)
}

async fn try_versions(state: &ArtifactsState, head: &Parts) -> Result<Response, HttpError> {
    #[derive(Serialize)]
    struct VersionsBody {
        versions: Vec<u64>,
    }
    let (key, _) = named(head, VERSIONS, &[])?;
    let versions =
        state.run_blocking(move |artifacts| Ok(artifacts.store()?.versions(&key)?)).await?;
    Ok(response::json(StatusCode::OK, &VersionsBody { versions }))
}

/// Lists artifacts.
async fn list(State(state): State<Arc<ArtifactsState>>, request: Request) -> Response {
    respond(try_list(&state, &request.into_parts().0).await)
}

async fn try_list(state: &ArtifactsState, head: &Parts) -> Result<Response, HttpError> {
    #[derive(Serialize)]
    struct ListBody {
        artifacts: Vec<ArtifactSummary>,
        next_cursor: Option<String>,
    }
    let (scope, params) = scope(head, &["limit", "cursor"])?;
    let PageQuery { limit, cursor } = PageQuery::of(&params)?;
    let after = cursor.as_deref().map(name_in).transpose()?;
    let page = state
        .run_blocking(move |artifacts| {
            Ok(artifacts.store()?.list(&scope, after.as_deref(), limit)?)
        })
        .await?;
    let next_cursor = page.last_name.map(|name| BASE64_URL_SAFE_NO_PAD.encode(name));
    Ok(response::json(StatusCode::OK, &ListBody { artifacts: page.artifacts, next_cursor }))
}

/// The last name of the page before, which is its cursor.
fn name_in(cursor: &str) -> Result<String, EngineError> {
    let name = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok().filter(|name| !name.is_empty());
    let name = name.and_then(|name| String::from_utf8(name).ok());
    name.ok_or_else(|| EngineError::invalid("cursor", "want a next_cursor"))
}

/// The artifact that the path and the query name, and the query.
fn named(
    head: &Parts,
    prefix: &str,
    known: &[&str],
) -> Result<(ArtifactKey, QueryParams), EngineError> {
    let (scope, params) = scope(head, known)?;
    Ok((ArtifactKey::new(scope, &name(&head.uri, prefix)?)?, params))
}

fn name(uri: &Uri, prefix: &str) -> Result<String, EngineError> {
    let name = uri.path().strip_prefix(prefix).and_then(percent_decode);
    name.ok_or_else(|| EngineError::invalid("name", "malformed"))
}

/// Whose artifacts the token and the query name, and the query, which may have `known` too.
fn scope(head: &Parts, known: &[&str]) -> Result<(ArtifactScope, QueryParams), EngineError> {
    let params = QueryParams::parse(&head.uri, &[&SESSION, known].concat())?;
    let owner = token_name(&head.extensions);
    let [app, user, session] = SESSION.map(|part| params.get(part).unwrap_or_default());
    Ok((ArtifactScope::new(owner.as_str(), app, user, session)?, params))
}
