//! `/v1/workspaces/{id}/contexts`: code that keeps its state.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;

use crate::config::TokenName;
use crate::http::engine::idempotency::answer_post;
use crate::http::engine::kept_answers::KeptAnswer;
use crate::http::engine::page::PageQuery;
use crate::http::engine::query::{QueryParams, WORKSPACES, workspace_id};
use crate::http::engine::state::{EngineState, parse};
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::percent_decode;
use crate::http::response;
use crate::workspace::execute::{CodeContext, ContextRequest, ContextView};
use crate::workspace::{EngineCode, EngineError};

/// Builds the routes.
pub fn routes() -> Router<Arc<EngineState>> {
    const CONTEXT: &str = "/v1/workspaces/{id}/contexts/{cid}";
    Router::new()
        .route("/v1/workspaces/{id}/contexts", get(list).post(create))
        .route(CONTEXT, get(view).delete(remove))
        .route(&format!("{CONTEXT}/interrupt"), post(interrupt))
        .route(&format!("{CONTEXT}/restart"), post(restart))
}

async fn create(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let created = answer_post(&state, request, |service, owner, id, body| {
        let request: ContextRequest = parse(body)?;
        let created = service.create_context(owner, id, request)?;
        let location = format!("{WORKSPACES}{id}/contexts/{}", created.context_id());
        Ok(KeptAnswer::json(StatusCode::CREATED, &created).at(location))
    });
    state.respond(created.await)
}

async fn list(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Serialize)]
    struct ContextsBody {
        contexts: Vec<ContextView>,
        next_cursor: Option<String>,
    }
    let listed = || -> Result<Response, HttpError> {
        let params = QueryParams::parse(request.uri(), &["limit", "cursor"])?;
        let page = PageQuery::of(&params)?;
        let owner = token_name(request.extensions());
        let id = workspace_id(request.uri())?;
        let (contexts, next) = state.service().contexts(&owner, &id, page.limit, page.number()?)?;
        let next_cursor = next.map(|number| number.to_string());
        Ok(response::json(StatusCode::OK, &ContextsBody { contexts, next_cursor }))
    };
    state.respond(listed())
}

async fn view(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let found = NamedContext::of(&request).and_then(|named| Ok(shown(&*named.find(&state)?)));
    state.respond(found)
}

async fn remove(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let removed = match NamedContext::of(&request) {
        Ok(NamedContext { owner, id, name }) => {
            state
                .run_blocking(move |service| {
                    service.remove_context(&owner, &id, &name)?;
                    let mut response = Response::default();
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    Ok(response)
                })
                .await
        }
        Err(error) => Err(error),
    };
    state.respond(removed)
}

async fn interrupt(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(change(&state, request, CodeContext::interrupt).await)
}

async fn restart(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(change(&state, request, CodeContext::restart).await)
}

/// Changes a context by a request whose body, if there is one, has no keys.
async fn change(
    state: &EngineState,
    request: Request,
    change: impl FnOnce(&CodeContext) + Send + 'static,
) -> Result<Response, HttpError> {
    let context = NamedContext::of(&request)?.find(state)?;
    let (head, body) = request.into_parts();
    let body = state.read(&head.headers, body).await?;
    if !body.is_empty() {
        let NoContextKeys {} = parse(&body)?;
    }
    let changed = state.run_blocking(move |_| {
        change(&context);
        Ok(shown(&context))
    });
    changed.await
}

/// A body that has no keys.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoContextKeys {}

/// The context that a path names.
struct NamedContext {
    owner: TokenName,
    id: String,
    name: String,
}

impl NamedContext {
    fn of(request: &Request) -> Result<Self, HttpError> {
        QueryParams::parse(request.uri(), &[])?;
        let owner = token_name(request.extensions());
        let id = workspace_id(request.uri())?;
        let missing = || EngineError::new(EngineCode::ContextNotFound, "no such context");
        let name = name(request.uri()).ok_or_else(missing)?;
        Ok(Self { owner, id, name })
    }

    fn find(&self, state: &EngineState) -> Result<Arc<CodeContext>, EngineError> {
        state.service().context(&self.owner, &self.id, &self.name)
    }
}

fn name(uri: &Uri) -> Option<String> {
    let name = uri.path().strip_prefix(WORKSPACES)?.split('/').nth(2)?;
    percent_decode(name)
}

fn shown(context: &CodeContext) -> Response {
    response::json(StatusCode::OK, &context.view())
}
