//! Inputs, staged directories, skills and collected outputs.

use std::io::Read;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;

use super::content::{receive, receive_in};
use super::entries::post;
use crate::config::TokenName;
use crate::http::engine::query::{QueryParams, workspace_id};
use crate::http::engine::state::EngineState;
use crate::http::error::HttpError;
use crate::http::request::percent_decode;
use crate::http::response;
use crate::workspace::files::{
    self, StageDirectoryRequest, StageInputsRequest, stage_archive, stage_directory, stage_inputs,
};
use crate::workspace::helpers::OutputSpec;
use crate::workspace::{EngineError, WorkspaceService, WorkspaceUse};

/// The prefix of the paths that name a skill.
const SKILLS: &str = "/v1/skills/";
/// The media types of an archive.
const ARCHIVES: [&str; 5] = [
    "application/x-tar",
    "application/tar",
    "application/gzip",
    "application/x-gzip",
    "application/octet-stream",
];

/// Stages inputs.
pub async fn inputs(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let stores = Arc::clone(state.service().stores());
    let stage = move |used: &mut WorkspaceUse, request: StageInputsRequest| {
        stage_inputs(used, &stores, &request)
    };
    state.respond(post(&state, request, StatusCode::OK, stage).await)
}

/// Collects outputs by a specification.
pub async fn outputs(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let stores = Arc::clone(state.service().stores());
    let collect = move |used: &mut WorkspaceUse, spec: OutputSpec| {
        files::collect_outputs(used, &stores, &spec)
    };
    state.respond(post(&state, request, StatusCode::OK, collect).await)
}

/// Stages a directory that a request names, or that is its body.
pub async fn directory(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let staged = if is_archive(request.headers(), request.uri()) {
        try_archive(&state, request).await
    } else {
        let stores = Arc::clone(state.service().stores());
        let stage = move |used: &mut WorkspaceUse, request: StageDirectoryRequest| {
            stage_directory(used, &stores, &request)
        };
        post(&state, request, StatusCode::OK, stage).await
    };
    state.respond(staged)
}

async fn try_archive(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let (id, asked) = staged_archive(&head.uri)?;
    let write =
        move |used: &mut WorkspaceUse, source: &mut dyn Read| stage_archive(used, &asked, source);
    let staged = receive(state, &head, id, body, write).await?;
    Ok(response::json(StatusCode::OK, &staged))
}

/// Stores a skill.
pub async fn put_skill(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_put_skill(&state, request).await)
}

async fn try_put_skill(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    QueryParams::parse(&head.uri, &[])?;
    let digest = head.uri.path().strip_prefix(SKILLS).and_then(percent_decode).unwrap_or_default();
    let save = move |service: &WorkspaceService, _: &TokenName, source: &mut dyn Read| {
        service.save_skill(&digest, source)
    };
    let stored = receive_in(state, &head, body, save).await?;
    let status = if stored.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(response::json(status, &stored))
}

/// Whether the body is an archive: it has the type of one, or the query has what a request in JSON has in its body.
/// Clients name any type for bytes, or none.
fn is_archive(headers: &HeaderMap, uri: &Uri) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    let is_json = media_type.eq_ignore_ascii_case("application/json");
    ARCHIVES.iter().any(|archive| archive.eq_ignore_ascii_case(media_type))
        || (!is_json && uri.query().is_some_and(|query| !query.is_empty()))
}

/// The workspace, and what the query says about the archive in the body.
fn staged_archive(uri: &Uri) -> Result<(String, StageDirectoryRequest), EngineError> {
    let params = QueryParams::parse(uri, &["to", "read_only", "allow_mount"])?;
    let to = params.get("to").ok_or_else(|| EngineError::invalid("to", "want a path"))?;
    let asked = StageDirectoryRequest {
        src: None,
        digest: None,
        to: to.to_owned(),
        read_only: Some(params.flag("read_only")?),
        allow_mount: Some(params.flag("allow_mount")?),
    };
    Ok((workspace_id(uri)?, asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_archive_by_its_media_type_or_by_the_query() {
        for (media_type, query, is) in [
            (None, "", false),
            (Some("application/json"), "", false),
            (Some("text/plain"), "", false),
            (Some("application/x-tar"), "", true),
            (Some("Application/GZIP"), "", true),
            (Some("application/x-tar; charset=binary"), "", true),
            (None, "?to=x", true),
            (Some("application/x-www-form-urlencoded"), "?to=x", true),
            (Some("application/json; charset=utf-8"), "?to=x", false),
        ] {
            let headers = media_type.map(|text| (CONTENT_TYPE, text.parse().unwrap()));
            let uri: Uri = format!("/v1/workspaces/w/stage-directory{query}").parse().unwrap();
            let told = is_archive(&headers.into_iter().collect(), &uri);
            assert_eq!(told, is, "{media_type:?} {query}");
        }
    }
}
