//! Service values to HTTP answers: every status, body and header of the API is decided here.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::head::HeadFault;
use crate::service::check_request::RequestFault;
use crate::service::check_run::{CheckError, CheckReport};
use crate::spec::{LimitKind, RunReport, Usage};

const OUTCOME: HeaderName = HeaderName::from_static("x-run-outcome");
const CPU_MS: HeaderName = HeaderName::from_static("x-run-cpu-ms");
const WALL_MS: HeaderName = HeaderName::from_static("x-run-wall-ms");
const MEMORY_PEAK_BYTES: HeaderName = HeaderName::from_static("x-run-memory-peak-bytes");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Why a request gets no report.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No such path.
    #[error("not found")]
    NotFound,
    /// The path exists, with other methods.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// A page of an origin that is not allowed asked.
    #[error("cross-origin request")]
    CrossOrigin,
    /// The head does not say beyond doubt where the message ends.
    #[error("{0}")]
    Framing(HeadFault),
    /// The body is compressed.
    #[error("content-encoding not supported")]
    ContentEncoding,
    /// The body is, or says it will be, above the limit.
    #[error("payload too large")]
    PayloadTooLarge,
    /// The body did not come in time.
    #[error("body not received in time")]
    BodyLate,
    /// The body ended before its end, or is malformed.
    #[error("body incomplete")]
    BodyIncomplete,
    /// The body is not a request.
    #[error(transparent)]
    Request(#[from] RequestFault),
    /// The service gave no report.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The run's thread ended without a word; it has been logged.
    #[error("internal")]
    Internal,
}

/// Among an answer's extensions until it is sent: why it is a refusal.
#[derive(Debug, Clone)]
pub struct Refused {
    /// In one word, of those that are counted.
    pub word: &'static str,
    /// For the log, without a word of the tenant's.
    pub reason: String,
    /// Whether the service is to blame.
    pub is_our_fault: bool,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::Framing(_) | Self::BodyIncomplete | Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::ContentEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Check(error) => match error {
                CheckError::Invalid(_) => StatusCode::BAD_REQUEST,
                CheckError::LanguageUnavailable(_) | CheckError::Draining => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                CheckError::Busy => StatusCode::TOO_MANY_REQUESTS,
                CheckError::Sandbox(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::CrossOrigin => "cross_origin",
            Self::Framing(_) => "framing",
            Self::ContentEncoding => "content_encoding",
            Self::PayloadTooLarge => "too_large",
            Self::BodyLate => "body_late",
            Self::BodyIncomplete => "body_incomplete",
            Self::Request(_) | Self::Check(CheckError::Invalid(_)) => "invalid",
            Self::Check(CheckError::LanguageUnavailable(_)) => "unavailable",
            Self::Check(CheckError::Busy) => "busy",
            Self::Check(CheckError::Draining) => "draining",
            Self::Check(CheckError::Sandbox(_)) => "sandbox",
            Self::Internal => "internal",
        }
    }

    /// Of bad JSON not what it says: the parser's words may be the tenant's.
    fn told(&self) -> Refused {
        let reason = match self {
            Self::Request(RequestFault::Json(fault)) => {
                format!("bad JSON: line {} column {}", fault.line(), fault.column())
            }
            _ => self.to_string(),
        };
        let is_draining = matches!(self, Self::Check(CheckError::Draining));
        let is_our_fault = self.status().is_server_error() && !is_draining;
        Refused { word: self.word(), reason, is_our_fault }
    }

    /// Whether the connection cannot be trusted with another request.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::Framing(_) | Self::PayloadTooLarge | Self::BodyLate | Self::BodyIncomplete
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = match &self {
            // Why it is unavailable is the operator's to know.
            Self::Check(CheckError::LanguageUnavailable(_)) => {
                error(self.status(), "language unavailable")
            }
            _ => error(self.status(), &self.to_string()),
        };
        let headers = response.headers_mut();
        if self.closes() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // There is a free slot soon, or another instance behind the same address.
        if matches!(self, Self::Check(CheckError::Busy | CheckError::Draining)) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self.told());
        response
    }
}

/// A text answer.
pub fn text(status: StatusCode, body: &'static str) -> Response {
    with_type(status, "text/plain", body)
}

/// A JSON answer. What cannot be written as JSON does not exist among our types.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => with_type(status, "application/json", bytes),
        Err(_) => with_type(StatusCode::INTERNAL_SERVER_ERROR, "application/json", "{}"),
    }
}

fn with_type(status: StatusCode, mime: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    response
}

fn error(status: StatusCode, words: &str) -> Response {
    #[derive(Serialize)]
    struct ErrorBody<'a> {
        error: &'a str,
    }
    json(status, &ErrorBody { error: words })
}

/// The body of a finished run, keys in the order of the wire.
#[derive(Debug, Serialize)]
pub struct RunBody {
    exit_code: Option<u8>,
    stdout: String,
    stderr: String,
    /// Only on an event stream, which has no headers left to say it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
}

impl RunBody {
    fn of(run: &RunReport) -> Self {
        Self {
            exit_code: run.outcome.shell_code(),
            stdout: run.stdout.text(),
            stderr: run.stderr.text(),
            outcome: None,
        }
    }

    /// The body of a stream's last event.
    pub fn with_outcome(run: &RunReport) -> Self {
        Self { outcome: Some(run.outcome.word()), ..Self::of(run) }
    }
}

/// The answer of a finished run.
pub fn from_report(report: &CheckReport) -> Response {
    let run = &report.run;
    let mut response = match run.outcome.limit() {
        Some(LimitKind::Output) => error(StatusCode::PAYLOAD_TOO_LARGE, "output too large"),
        _ => json(StatusCode::OK, &RunBody::of(run)),
    };
    let headers = response.headers_mut();
    headers.insert(OUTCOME, HeaderValue::from_static(run.outcome.word()));
    headers.insert(CPU_MS, run.usage.cpu_ms.into());
    headers.insert(WALL_MS, run.usage.wall_ms.into());
    if let Some(bytes) = memory_peak_bytes(&run.usage) {
        headers.insert(MEMORY_PEAK_BYTES, bytes.into());
    }
    if let Ok(timing) = HeaderValue::try_from(server_timing(report)) {
        headers.insert(SERVER_TIMING, timing);
    }
    response
}

/// The box's peak; the largest single process, which `rusage` tells, is another thing.
fn memory_peak_bytes(usage: &Usage) -> Option<u64> {
    usage.memory_peak_source.starts_with("cgroup").then_some(usage.memory_peak_bytes)
}

fn server_timing(report: &CheckReport) -> String {
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let timings = &report.run.timings;
    format!(
        "queue;dur={:.3}, prepare;dur={:.3}, run;dur={:.3}, cleanup;dur={:.3}",
        millis(report.queued),
        millis(timings.prepare),
        millis(timings.run),
        millis(timings.cleanup),
    )
}
