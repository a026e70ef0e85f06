//! `results`, `junit.xml` and `report.html` of a run.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;

use super::path::run_id;
use super::state::{CasesState, respond};
use crate::case::service::{CaseRunDocument, CaseRuns, CaseRunsError};
use crate::http::error::HttpError;
use crate::http::jobs::state::acquire;
use crate::http::request::access::token_name;
use crate::http::response::file_pieces::FilePart;
use crate::http::server::connection::LazyBody;

/// A page that was made of what agents printed: it runs nothing, loads nothing, and is of no origin.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                             form-action 'none'; frame-ancestors 'none'; sandbox";

/// Finds a document of a run for the name of a token.
type Find = fn(&dyn CaseRuns, &str, &str) -> Result<CaseRunDocument, CaseRunsError>;

/// Sends the results.
pub async fn results(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    let headers = [(CONTENT_TYPE, "application/json")];
    respond(send(&state, request, |all, owner, id| all.results(owner, id), &headers).await)
}

/// Sends the results as JUnit XML. Browsers save it.
pub async fn junit(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    let headers = [(CONTENT_TYPE, "application/xml"), (CONTENT_DISPOSITION, "attachment")];
    respond(send(&state, request, |all, owner, id| all.junit(owner, id), &headers).await)
}

/// Sends the page.
pub async fn report(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    let headers =
        [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, REPORT_POLICY)];
    respond(send(&state, request, |all, owner, id| all.report(owner, id), &headers).await)
}

async fn send(
    state: &CasesState,
    request: Request,
    find: Find,
    headers: &[(HeaderName, &'static str)],
) -> Result<Response, HttpError> {
    let permit = acquire(&state.downloads, "downloads")?;
    let (owner, id) = (token_name(request.extensions()), run_id(request.uri()));
    let found = state.run_blocking(move |all| Ok(find(all, owner.as_str(), &id)?)).await?;
    let CaseRunDocument { file, bytes } = found;
    let mut response = Response::new(Body::new(FilePart::new(file, 0, bytes, permit)));
    response.extensions_mut().insert(LazyBody);
    let ours = [(X_CONTENT_TYPE_OPTIONS, "nosniff"), (CACHE_CONTROL, "no-store")];
    for (name, value) in headers.iter().chain(&ours) {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
