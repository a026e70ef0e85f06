//! Errors as HTTP responses: the status, body and headers of every error are decided here.

use axum::http::header::{CONNECTION, CONTENT_RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use serde_json::{Value, json};

use super::cases::error as case;
use super::evaluations::error as evaluation;
use super::response;
use crate::case::service::CaseRunsError;
use crate::check::request::CheckRequestError;
use crate::check::run::CheckError;
use crate::evaluation::service::EvaluationsError;
use crate::workspace::{EngineCode, EngineError};
use cofferdam_core::framing::head::HeadError;
use cofferdam_core::job::{ErrorCode, JobError};

/// The API that an error belongs to, which decides the shape of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpApi {
    /// `/run` and all other routes outside `/v1/`: `{"error": …}`.
    Runs,
    /// Everything below `/v1/`: a [`JobError`] or an [`EngineError`].
    Jobs,
    /// `/evaluate`, `/evaluations` and everything below them: as jobs, with codes of its own.
    Evaluations,
}

impl HttpApi {
    /// Returns the API that `uri` belongs to, whether or not the route exists.
    pub fn of(uri: &Uri) -> Self {
        match uri.path().split('/').nth(1) {
            Some("v1") if uri.path() != "/v1" => Self::Jobs,
            Some("evaluate" | "evaluations") => Self::Evaluations,
            _ => Self::Runs,
        }
    }
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The path does not exist.
    #[error("not found")]
    NotFound,
    /// The path exists, but not with this method.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// The request has no valid token.
    #[error("unauthorized")]
    Unauthorized,
    /// A page from an origin that is not allowed sent the request.
    #[error("cross-origin request")]
    CrossOrigin,
    /// `Host` names a host that is not trusted, and no token is required.
    #[error("Host is no address, no local name and not in HTTP_HOSTS_ALLOW")]
    HostNotAllowed,
    /// `Host` is missing, repeated or malformed.
    #[error("{0}")]
    Host(HostError),
    /// The head does not say unambiguously where the message ends.
    #[error("{0}")]
    Framing(HeadError),
    /// The body is compressed.
    #[error("content-encoding not supported")]
    ContentEncoding,
    /// The body is longer than the limit, or announces that it is.
    #[error("payload too large")]
    PayloadTooLarge,
    /// The body did not arrive in time.
    #[error("body not received in time")]
    BodyLate,
    /// The body grew too slowly and held memory that others needed.
    #[error("too many unfinished request bodies")]
    NoRoomForBody,
    /// The body ended early or is malformed.
    #[error("body incomplete")]
    BodyIncomplete,
    /// The body is not a valid check request.
    #[error(transparent)]
    Request(#[from] CheckRequestError),
    /// The check service returned an error instead of a report.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The body of a job request is not JSON.
    #[error(transparent)]
    NotJson(JobError),
    /// The job service refused the request.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The engine refused the request.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The service of evaluations refused the request.
    #[error(transparent)]
    Evaluation(#[from] EvaluationsError),
    /// The service of Cases refused the request.
    #[error(transparent)]
    Case(#[from] CaseRunsError),
    /// No byte of an artifact of this size is in the requested range.
    #[error("no such range")]
    Range(u64),
    /// `If-Match` does not match the artifact.
    #[error("the artifact is not the one of If-Match")]
    AnotherFile,
    /// One of our threads ended without a result, which has been logged.
    #[error("internal")]
    Internal,
}

/// Why a `Host` header is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// HTTP/1.1 requires one.
    #[error("no Host header")]
    Missing,
    /// With two, it is unclear which one counts.
    #[error("more than one Host header")]
    Repeated,
    /// Not `host` or `host:port`.
    #[error("malformed Host header")]
    Malformed,
}

/// Why a request was refused, for the log and the metrics. Travels in the response's extensions
/// until the response is sent.
#[derive(Debug, Clone)]
pub struct ErrorContext {
    /// The label of the metric.
    pub reason: &'static str,
    /// The message for the log, without any text of the tenant's.
    pub message: String,
    /// Whether the service is at fault.
    pub is_server_fault: bool,
}

/// Returns the status for `code` and the label of the metric.
fn status_of(code: ErrorCode) -> (StatusCode, &'static str) {
    match code {
        ErrorCode::InvalidRequest | ErrorCode::PathEscape => {
            (StatusCode::UNPROCESSABLE_ENTITY, "invalid")
        }
        ErrorCode::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        ErrorCode::JobNotFound => (StatusCode::NOT_FOUND, "not_found"),
        ErrorCode::JobConflict => (StatusCode::CONFLICT, "conflict"),
        ErrorCode::QueueFull => (StatusCode::SERVICE_UNAVAILABLE, "queue_full"),
        ErrorCode::QueueClosed => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        ErrorCode::AuthRequired => (StatusCode::UNAUTHORIZED, "unauthorized"),
        ErrorCode::BackendUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        // A job's result reports what the policy denied. A request that is refused for it is not a
        // failure of the service.
        ErrorCode::CommandDenied
        | ErrorCode::ShellDenied
        | ErrorCode::EnvDenied
        | ErrorCode::ArtifactDenied
        | ErrorCode::WorkspaceDenied
        | ErrorCode::NetworkDenied
        | ErrorCode::SecretDenied => (StatusCode::FORBIDDEN, "invalid"),
        // These belong in results; as the outcome of a request they are failures of the service.
        ErrorCode::BackendSetupFailed
        | ErrorCode::TimedOut
        | ErrorCode::SpawnFailed
        | ErrorCode::IoFailed
        | ErrorCode::ArtifactCollectionFailed
        | ErrorCode::ExitNonzero
        | ErrorCode::LimitExceeded
        | ErrorCode::Interrupted
        | ErrorCode::Canceled => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// Returns the label of the metric for `code`, by its status.
fn reason_of(code: EngineCode) -> &'static str {
    match code.status() {
        401 => "unauthorized",
        404 => "not_found",
        409 => "conflict",
        413 => "too_large",
        429 => "busy",
        503 if code == EngineCode::EngineClosed => "draining",
        503 => "unavailable",
        507 => "no_room",
        500 => "internal",
        _ => "invalid",
    }
}

impl HttpError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::CrossOrigin | Self::HostNotAllowed => StatusCode::FORBIDDEN,
            Self::Framing(_)
            | Self::Host(_)
            | Self::BodyIncomplete
            | Self::Request(_)
            | Self::NotJson(_) => StatusCode::BAD_REQUEST,
            Self::NoRoomForBody => StatusCode::SERVICE_UNAVAILABLE,
            Self::ContentEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::Range(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::AnotherFile => StatusCode::PRECONDITION_FAILED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Job(error) => status_of(error.code).0,
            Self::Evaluation(error) => evaluation::status_of(error).0,
            Self::Case(error) => case::status_of(error).0,
            Self::Engine(error) => StatusCode::from_u16(error.code.status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
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

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Unauthorized => "unauthorized",
            Self::CrossOrigin => "cross_origin",
            Self::Framing(_) => "framing",
            Self::Host(_) | Self::HostNotAllowed => "host",
            Self::NoRoomForBody => "no_room",
            Self::ContentEncoding => "content_encoding",
            Self::PayloadTooLarge => "too_large",
            Self::BodyLate => "body_late",
            Self::BodyIncomplete => "body_incomplete",
            Self::Request(_)
            | Self::NotJson(_)
            | Self::Range(_)
            | Self::Check(CheckError::Invalid(_)) => "invalid",
            Self::AnotherFile => "conflict",
            Self::Job(error) => status_of(error.code).1,
            Self::Evaluation(error) => evaluation::status_of(error).1,
            Self::Case(error) => case::status_of(error).1,
            Self::Engine(error) => reason_of(error.code),
            Self::Check(CheckError::LanguageUnavailable(_)) => "unavailable",
            Self::Check(CheckError::Busy) => "busy",
            Self::Check(CheckError::Draining) => "draining",
            Self::Check(CheckError::Sandbox(_)) => "sandbox",
            Self::Internal => "internal",
        }
    }

    /// Returns what is logged. Leaves out the details of bad JSON and of a job's error, which can
    /// contain the tenant's text.
    fn context(&self) -> ErrorContext {
        let message = match self {
            Self::Request(CheckRequestError::Json(fault)) => {
                format!("bad JSON: line {} column {}", fault.line(), fault.column())
            }
            Self::Job(error) => error.code.word().to_owned(),
            Self::Engine(error) => error.code.word().to_owned(),
            Self::Evaluation(error) => error.code().to_owned(),
            Self::Case(error) => error.code().to_owned(),
            _ => self.to_string(),
        };
        let is_server_fault =
            self.status().is_server_error() && !self.is_temporary() && !self.is_full_workspace();
        ErrorContext { reason: self.reason(), message, is_server_fault }
    }

    /// Returns whether a client's own workspace has no room.
    fn is_full_workspace(&self) -> bool {
        matches!(self, Self::Engine(error) if error.code == EngineCode::WorkspaceDiskFull)
    }

    /// Returns whether the connection must close because a next request could not be trusted.
    fn closes_connection(&self) -> bool {
        match self {
            Self::Framing(_)
            | Self::Host(_)
            | Self::PayloadTooLarge
            | Self::BodyLate
            | Self::NoRoomForBody
            | Self::BodyIncomplete => true,
            Self::Job(error) => error.code == ErrorCode::TooLarge,
            Self::Engine(error) => error.code == EngineCode::TooLarge,
            Self::Case(error) => matches!(error, CaseRunsError::TooLarge { .. }),
            _ => false,
        }
    }

    /// Returns whether a retry may succeed soon, here or on another instance behind the same
    /// address.
    fn is_temporary(&self) -> bool {
        match self {
            Self::Evaluation(error) => evaluation::retry_after_seconds(error).is_some(),
            Self::Case(error) => case::retry_after_seconds(error).is_some(),
            Self::NoRoomForBody | Self::Check(CheckError::Busy | CheckError::Draining) => true,
            Self::Job(error) => {
                matches!(error.code, ErrorCode::QueueFull | ErrorCode::QueueClosed)
            }
            Self::Engine(error) => matches!(
                error.code,
                EngineCode::EngineBusy | EngineCode::EngineClosed | EngineCode::WorkspacesFull
            ),
            _ => false,
        }
    }

    /// Returns the error in the shape of the jobs API.
    pub fn into_job_error(self) -> JobError {
        let code = match self {
            Self::Job(error) | Self::NotJson(error) => return error,
            Self::Range(bytes) => {
                let error = JobError::new(ErrorCode::InvalidRequest, "no such range");
                return error.with("bytes", bytes);
            }
            Self::Evaluation(_) | Self::Case(_) => ErrorCode::IoFailed,
            Self::NotFound => ErrorCode::JobNotFound,
            Self::AnotherFile => ErrorCode::JobConflict,
            Self::Unauthorized => ErrorCode::AuthRequired,
            Self::PayloadTooLarge => ErrorCode::TooLarge,
            Self::MethodNotAllowed
            | Self::CrossOrigin
            | Self::HostNotAllowed
            | Self::Host(_)
            | Self::Framing(_)
            | Self::ContentEncoding
            | Self::BodyLate
            | Self::BodyIncomplete
            | Self::Request(_)
            | Self::Check(CheckError::Invalid(_)) => ErrorCode::InvalidRequest,
            Self::NoRoomForBody | Self::Check(CheckError::Busy) => ErrorCode::QueueFull,
            Self::Check(CheckError::Draining) => ErrorCode::QueueClosed,
            Self::Check(CheckError::LanguageUnavailable(_)) => ErrorCode::BackendUnavailable,
            Self::Check(CheckError::Sandbox(_)) | Self::Internal | Self::Engine(_) => {
                ErrorCode::IoFailed
            }
        };
        JobError::new(code, self.to_string())
    }

    /// Returns the error as JSON, in the shape of `api`.
    pub fn into_json(self, api: HttpApi) -> Value {
        let made = match (api, self) {
            (_, Self::Engine(error)) => serde_json::to_value(error),
            (_, Self::Evaluation(error)) => Ok(evaluation::body(&error)),
            (_, Self::Case(error)) => Ok(case::body(&error)),
            (HttpApi::Jobs, error) => serde_json::to_value(error.into_job_error()),
            (HttpApi::Evaluations, error) => Ok(evaluation::body_of_other(&error.into_job_error())),
            (HttpApi::Runs, error) => Ok(json!({ "error": error.to_string() })),
        };
        // All of our errors serialize.
        made.unwrap_or_default()
    }

    /// Returns the response, in the shape of `api`.
    pub fn answer(self, api: HttpApi) -> Response {
        let (status, context) = (self.status(), self.context());
        let (closes, is_temporary) = (self.closes_connection(), self.is_temporary());
        let retry_after = match &self {
            Self::Evaluation(error) => evaluation::retry_after_seconds(error),
            Self::Case(error) => case::retry_after_seconds(error),
            _ => is_temporary.then_some(1),
        };
        let range = if let Self::Range(bytes) = self { Some(bytes) } else { None };
        let mut response = match (api, &self) {
            (_, Self::Engine(error)) => response::json(status, error),
            (_, Self::Evaluation(error)) => response::json(status, &evaluation::body(error)),
            (_, Self::Case(error)) => response::json(status, &case::body(error)),
            (HttpApi::Jobs | HttpApi::Evaluations, _) => {
                response::json(status, &self.into_json(api))
            }
            // The reason is for the operator only.
            (HttpApi::Runs, Self::Check(CheckError::LanguageUnavailable(_))) => {
                response::error(status, "language unavailable")
            }
            (HttpApi::Runs, _) => response::error(status, &self.to_string()),
        };
        let headers = response.headers_mut();
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        headers.extend(retry_after.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(Ok(range)) =
            range.map(|bytes| HeaderValue::try_from(format!("bytes */{bytes}")))
        {
            headers.insert(CONTENT_RANGE, range);
        }
        response.extensions_mut().insert(context);
        response
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        self.answer(HttpApi::Runs)
    }
}
