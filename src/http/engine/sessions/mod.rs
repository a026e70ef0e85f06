//! `/v1/workspaces/{id}/sessions`: programs that talk.

mod attach;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use self::attach::{AttachQuery, accept, follow, is_page_allowed};
use super::idempotency::answer_post;
use super::kept_answers::KeptAnswer;
use super::page::PageQuery;
use super::query::{QueryParams, WORKSPACES, workspace_id};
use super::state::{EngineState, parse, parse_optional};
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::percent_decode;
use crate::http::response;
use crate::http::server::connection::Takeover;
use crate::workspace::sessions::{LinePage, Session, SessionPage, SessionState, StartRequest};
use crate::workspace::{EngineCode, EngineError, WorkspaceService, decode, encode};
use cofferdam_core::job::TextEncoding;

/// The longest wait of a poll.
const WAIT_MS_MAX: u64 = 60_000;
/// The grace of a kill that names none.
const GRACE_MS: u64 = 2_000;
/// The longest grace.
const GRACE_MS_MAX: u64 = 60_000;
/// How long a killed program may take to die, besides its grace.
const DEATH_WAIT: Duration = Duration::from_secs(10);

/// Builds the routes.
pub fn routes() -> Router<Arc<EngineState>> {
    const SESSION: &str = "/v1/workspaces/{id}/sessions/{sid}";
    let of_session = |name: &str| format!("{SESSION}/{name}");
    Router::new()
        .route("/v1/workspaces/{id}/sessions", get(list).post(start))
        .route(SESSION, get(view).delete(close))
        .route(&of_session("poll"), post(poll))
        .route(&of_session("log"), get(log))
        .route(&of_session("write"), post(write))
        .route(&of_session("close-stdin"), post(close_stdin))
        .route(&of_session("resize"), post(resize))
        .route(&of_session("signal"), post(signal))
        .route(&of_session("kill"), post(kill))
        .route(&of_session("result"), get(result))
        .route(&of_session("attach"), get(attach))
}

/// The output of a session, as polls and reads of the log answer it.
#[derive(Debug, Serialize)]
struct PageBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    output: String,
    encoding: TextEncoding,
    offset: u64,
    next_offset: u64,
    /// Left out of a log; null while the program runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<Option<i32>>,
    partial: bool,
}

impl PageBody {
    fn of_log(lines: LinePage) -> Self {
        let LinePage { offset, next_offset, text, partial } = lines;
        let (encoding, output) = encode(text);
        Self { status: None, output, encoding, offset, next_offset, exit_code: None, partial }
    }

    fn of_poll(page: SessionPage) -> Self {
        let SessionPage { status, exit_code, lines } = page;
        Self { status: Some(status), exit_code: Some(exit_code), ..Self::of_log(lines) }
    }
}

async fn start(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let started = answer_post(&state, request, |service, owner, id, body| {
        let request: StartRequest = parse(body)?;
        let started = service.start_session(owner, id, request)?;
        let location = format!("{WORKSPACES}{id}/sessions/{}", started.session_id);
        Ok(KeptAnswer::json(StatusCode::CREATED, &started).at(location))
    });
    state.respond(started.await)
}

async fn list(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Serialize)]
    struct SessionsBody {
        sessions: Vec<SessionState>,
        next_cursor: Option<String>,
    }
    let listed = || -> Result<Response, HttpError> {
        let params = QueryParams::parse(request.uri(), &["limit", "cursor"])?;
        let page = PageQuery::of(&params)?;
        let owner = token_name(request.extensions());
        let id = workspace_id(request.uri())?;
        let (sessions, next) = state.service().sessions(&owner, &id, page.limit, page.number()?)?;
        let next_cursor = next.map(|number| number.to_string());
        Ok(response::json(StatusCode::OK, &SessionsBody { sessions, next_cursor }))
    };
    state.respond(listed())
}

async fn view(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let viewed = session(&state, &request, &[]).map(|(session, _)| shown(&session));
    state.respond(viewed)
}

async fn close(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let found = session(&state, &request, &[]);
    let (owner, id) = (token_name(request.extensions()), workspace_id(request.uri()));
    drop(request);
    let closed = async {
        let ((session, _), id) = (found?, id?);
        session.cancel();
        wait_end(&session, Duration::ZERO).await?;
        state.service().forget_session(&owner, &id, session.id())?;
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    };
    state.respond(closed.await)
}

async fn poll(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct PollRequest {
        limit: Option<i64>,
        wait_ms: Option<u64>,
    }
    let polled = async {
        let (session, body) = session_and::<PollRequest>(&state, request).await?;
        let wait = body.wait_ms.unwrap_or_default();
        if wait > WAIT_MS_MAX {
            let error = EngineError::invalid("wait_ms", format!("more than {WAIT_MS_MAX}"));
            return Err(error.with("max", WAIT_MS_MAX).into());
        }
        let deadline = Instant::now() + Duration::from_millis(wait);
        let mut progress = session.progress();
        while !session.has_news() && timeout_at(deadline, progress.changed()).await.is_ok() {}
        let page = session.poll(limit(body.limit));
        Ok(response::json(StatusCode::OK, &PageBody::of_poll(page)))
    };
    state.respond(polled.await)
}

async fn log(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let read = || -> Result<Response, HttpError> {
        let (session, params) = session(&state, &request, &["offset", "limit"])?;
        let offset = signed(&params, "offset")?.unwrap_or_default();
        let offset = u64::try_from(offset).unwrap_or_default();
        let page = session.read(offset, limit(signed(&params, "limit")?));
        Ok(response::json(StatusCode::OK, &PageBody::of_log(page)))
    };
    state.respond(read())
}

async fn write(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WriteRequest {
        data: Option<String>,
        encoding: Option<TextEncoding>,
        newline: Option<bool>,
    }
    #[derive(Serialize)]
    struct WrittenBody {
        written: usize,
    }
    let written = async {
        let (session, body) = session_and::<WriteRequest>(&state, request).await?;
        let encoding = body.encoding.unwrap_or_default();
        let mut bytes = decode(encoding, "data", body.data.unwrap_or_default())?;
        bytes.extend(body.newline.unwrap_or_default().then_some(b'\n'));
        let written = bytes.len();
        // A full queue is counted again, which takes a moment.
        state.run_blocking(move |_| Ok(session.write(&bytes)?)).await?;
        Ok(response::json(StatusCode::OK, &WrittenBody { written }))
    };
    state.respond(written.await)
}

async fn close_stdin(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let closed = async {
        let (session, NoKeys {}) = session_and(&state, request).await?;
        state.run_blocking(move |_| Ok(ok(&session.close_stdin()?))).await
    };
    state.respond(closed.await)
}

async fn resize(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ResizeRequest {
        cols: u16,
        rows: u16,
    }
    let resized = async {
        let (session, body) = session_and::<ResizeRequest>(&state, request).await?;
        state.run_blocking(move |_| Ok(ok(&session.resize(body.cols, body.rows)?))).await
    };
    state.respond(resized.await)
}

async fn signal(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SignalRequest {
        signal: String,
    }
    let sent = async {
        let (session, body) = session_and::<SignalRequest>(&state, request).await?;
        state.run_blocking(move |_| Ok(ok(&session.signal(&body.signal)?))).await
    };
    state.respond(sent.await)
}

async fn kill(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let (owner, id) = (token_name(request.extensions()), workspace_id(request.uri()));
    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct KillRequest {
        grace_ms: Option<u64>,
    }
    let killed = async {
        let (session, body) = session_and::<KillRequest>(&state, request).await?;
        let grace = match body.grace_ms.unwrap_or_default() {
            0 => GRACE_MS,
            grace if grace <= GRACE_MS_MAX => grace,
            _ => {
                let error = EngineError::invalid("grace_ms", format!("more than {GRACE_MS_MAX}"));
                return Err(error.with("max", GRACE_MS_MAX).into());
            }
        };
        let grace = Duration::from_millis(grace);
        let ordered = Arc::clone(&session);
        let order = move |_: &WorkspaceService| {
            ordered.terminate(grace);
            Ok(())
        };
        state.run_blocking(order).await?;
        wait_end(&session, grace).await?;
        let (id, ended) = (id?, Arc::clone(&session));
        state.run_blocking(move |service| Ok(service.kill_left(&owner, &id, &ended)?)).await?;
        Ok(shown(&session))
    };
    state.respond(killed.await)
}

async fn result(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let found = session(&state, &request, &[]);
    let result = found.and_then(|(session, _)| Ok(ok(&*session.result()?)));
    state.respond(result)
}

async fn attach(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let attached = || -> Result<Response, HttpError> {
        if !is_page_allowed(request.headers(), &state.limits.origins) {
            return Err(HttpError::CrossOrigin);
        }
        let (session, params) = session(&state, &request, &["offset", "readonly"])?;
        let offset =
            match params.get("offset") {
                Some("end") => None,
                _ => Some(u64::try_from(signed(&params, "offset")?.unwrap_or_default()).map_err(
                    |_| EngineError::invalid("offset", "want a number of bytes, or end"),
                )?),
            };
        let query = AttachQuery { offset, read_only: params.flag("readonly")? };
        let mut response = accept(&request.into_parts().0)?;
        let takeover = move |socket: Arc<TcpStream>| follow(session, query, socket);
        response.extensions_mut().insert(Takeover::new(takeover));
        Ok(response)
    };
    state.respond(attached())
}

/// A body that has no keys.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoKeys {}

/// The session that a request names, and its parameters.
fn session(
    state: &EngineState,
    request: &Request,
    known: &[&str],
) -> Result<(Arc<Session>, QueryParams), HttpError> {
    let owner = token_name(request.extensions());
    let params = QueryParams::parse(request.uri(), known)?;
    Ok((find(state, &owner, request.uri())?, params))
}

/// The session that a request names, and its body. An empty body is one without keys.
async fn session_and<T: DeserializeOwned + Default>(
    state: &EngineState,
    request: Request,
) -> Result<(Arc<Session>, T), HttpError> {
    let (head, body) = request.into_parts();
    QueryParams::parse(&head.uri, &[])?;
    let found = find(state, &token_name(&head.extensions), &head.uri)?;
    let body = state.read(&head.headers, body).await?;
    let body = parse_optional(&body)?;
    Ok((found, body))
}

fn find(
    state: &EngineState,
    owner: &crate::config::TokenName,
    uri: &Uri,
) -> Result<Arc<Session>, HttpError> {
    let id = workspace_id(uri)?;
    let name = uri.path().strip_prefix(WORKSPACES).and_then(|path| path.split('/').nth(2));
    let name = name.and_then(percent_decode).ok_or_else(no_session)?;
    Ok(state.service().session(owner, &id, &name)?)
}

fn no_session() -> EngineError {
    EngineError::new(EngineCode::SessionNotFound, "no such session")
}

/// Waits until everything of a killed program is dead.
async fn wait_end(session: &Session, grace: Duration) -> Result<(), EngineError> {
    let deadline = Instant::now() + grace + DEATH_WAIT;
    let mut progress = session.progress();
    while session.end().is_none() {
        if timeout_at(deadline, progress.changed()).await.is_err() {
            let words = "the killed program is not dead yet";
            return Err(EngineError::new(EngineCode::SandboxFailed, words));
        }
    }
    Ok(())
}

fn signed(params: &QueryParams, key: &str) -> Result<Option<i64>, EngineError> {
    let wrong = || EngineError::invalid(key, "want a whole number");
    params.get(key).map(|text| whole_number(text).ok_or_else(wrong)).transpose()
}

/// The number in decimal digits. One that is too large for the type is the largest of it: all of ours are clamped.
fn whole_number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse().unwrap_or(i64::MAX))?;
    Some(if is_negative { -number } else { number })
}

fn limit(limit: Option<i64>) -> Option<usize> {
    limit.filter(|limit| *limit > 0).map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

fn shown(session: &Session) -> Response {
    ok(&session.state())
}

fn ok(value: &impl Serialize) -> Response {
    response::json(StatusCode::OK, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_digits_only_and_is_clamped() {
        for (text, number) in [
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("007", Some(7)),
            ("99999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999", Some(-i64::MAX)),
            ("", None),
            ("-", None),
            ("+1", None),
            ("--1", None),
            ("1.5", None),
            (" 1", None),
        ] {
            assert_eq!(whole_number(text), number, "{text:?}");
        }
    }
}
