//! Refusals to HTTP answers: the status, the body and the headers of every one are decided here.

use axum::http::header::{CONNECTION, CONTENT_RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::response;
use super::server::head::HeadError;
use crate::check::request::CheckRequestError;
use crate::check::run::CheckError;
use cofferdam_core::job::{ErrorCode, JobError};

/// Whose shape an error has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpApi {
    /// `{"error": …}`, that of `/run` and of everything beside it.
    Runs,
    /// A [`JobError`], that of everything below `/v1/`.
    Jobs,
}

impl HttpApi {
    /// The API that `uri` is part of, whether there is anything there or not.
    pub fn of(uri: &Uri) -> Self {
        if uri.path().starts_with("/v1/") { Self::Jobs } else { Self::Runs }
    }
}

/// Why a request does not get what it asks for.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// No such path.
    #[error("not found")]
    NotFound,
    /// The path exists, with other methods.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// No token of ours.
    #[error("unauthorized")]
    Unauthorized,
    /// A page of an origin that is not allowed asked.
    #[error("cross-origin request")]
    CrossOrigin,
    /// Without a token: the name in `Host` may be anybody's.
    #[error("Host is no address, no local name and not in HTTP_HOSTS_ALLOW")]
    HostNotAllowed,
    /// There is not one good `Host`.
    #[error("{0}")]
    Host(HostError),
    /// The head does not say beyond doubt where the message ends.
    #[error("{0}")]
    Framing(HeadError),
    /// The body is compressed.
    #[error("content-encoding not supported")]
    ContentEncoding,
    /// The body is, or says it will be, above the limit.
    #[error("payload too large")]
    PayloadTooLarge,
    /// The body did not come in time.
    #[error("body not received in time")]
    BodyLate,
    /// The body took too long and too much room while others needed it.
    #[error("too many unfinished request bodies")]
    NoRoomForBody,
    /// The body ended before its end, or is malformed.
    #[error("body incomplete")]
    BodyIncomplete,
    /// The body is not a request.
    #[error(transparent)]
    Request(#[from] CheckRequestError),
    /// The service gave no report.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The body of a job's request is no JSON.
    #[error(transparent)]
    NotJson(JobError),
    /// The jobs refuse it.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Nothing of an artifact of so many bytes is in the range that was asked for.
    #[error("no such range")]
    Range(u64),
    /// `If-Match` names another file than the artifact is.
    #[error("the artifact is not the one of If-Match")]
    AnotherFile,
    /// A thread of ours ended without a word; it has been logged.
    #[error("internal")]
    Internal,
}

/// Why a `Host` header is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// HTTP/1.1 requires one.
    #[error("no Host header")]
    Missing,
    /// Of two it is not known which is meant.
    #[error("more than one Host header")]
    Repeated,
    /// Not `host` or `host:port`.
    #[error("malformed Host header")]
    Malformed,
}

/// Among an answer's extensions until it is sent: why it is a refusal.
#[derive(Debug, Clone)]
pub struct ErrorContext {
    /// In one word, of those that are counted.
    pub word: &'static str,
    /// For the log, without a word of the tenant's.
    pub reason: String,
    /// Whether the service is to blame.
    pub is_our_fault: bool,
}

/// The status of a request that is refused for `code`, and the word it is counted by.
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
        // What the policy says is in a job's result. A request that is refused for it all the
        // same is nobody's failure.
        ErrorCode::CommandDenied
        | ErrorCode::ShellDenied
        | ErrorCode::EnvDenied
        | ErrorCode::ArtifactDenied
        | ErrorCode::WorkspaceDenied
        | ErrorCode::NetworkDenied => (StatusCode::FORBIDDEN, "invalid"),
        // Of these, too, results tell; as a request's end they are a failure of ours.
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

impl ApiError {
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
            Self::Check(CheckError::LanguageUnavailable(_)) => "unavailable",
            Self::Check(CheckError::Busy) => "busy",
            Self::Check(CheckError::Draining) => "draining",
            Self::Check(CheckError::Sandbox(_)) => "sandbox",
            Self::Internal => "internal",
        }
    }

    /// Of bad JSON and of a job's request not what it says: those words may be the tenant's.
    fn told(&self) -> ErrorContext {
        let reason = match self {
            Self::Request(CheckRequestError::Json(fault)) => {
                format!("bad JSON: line {} column {}", fault.line(), fault.column())
            }
            Self::Job(error) => error.code.word().to_owned(),
            _ => self.to_string(),
        };
        let is_expected = self.is_over_soon();
        let is_our_fault = self.status().is_server_error() && !is_expected;
        ErrorContext { word: self.word(), reason, is_our_fault }
    }

    /// Whether the connection cannot be trusted with another request.
    fn closes(&self) -> bool {
        match self {
            Self::Framing(_)
            | Self::Host(_)
            | Self::PayloadTooLarge
            | Self::BodyLate
            | Self::NoRoomForBody
            | Self::BodyIncomplete => true,
            Self::Job(error) => error.code == ErrorCode::TooLarge,
            _ => false,
        }
    }

    /// Whether there is room soon, or another instance behind the same address.
    fn is_over_soon(&self) -> bool {
        match self {
            Self::NoRoomForBody | Self::Check(CheckError::Busy | CheckError::Draining) => true,
            Self::Job(error) => {
                matches!(error.code, ErrorCode::QueueFull | ErrorCode::QueueClosed)
            }
            _ => false,
        }
    }

    /// The same as the jobs tell it.
    pub fn into_job_error(self) -> JobError {
        let code = match self {
            Self::Job(error) | Self::NotJson(error) => return error,
            Self::Range(bytes) => {
                let error = JobError::new(ErrorCode::InvalidRequest, "no such range");
                return error.with("bytes", bytes);
            }
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
            Self::Check(CheckError::Sandbox(_)) | Self::Internal => ErrorCode::IoFailed,
        };
        JobError::new(code, self.to_string())
    }

    /// The answer, in the shape of `api`.
    pub fn answer(self, api: HttpApi) -> Response {
        let (status, told) = (self.status(), self.told());
        let (closes, is_over_soon) = (self.closes(), self.is_over_soon());
        let range = if let Self::Range(bytes) = self { Some(bytes) } else { None };
        let mut response = match (api, &self) {
            (HttpApi::Jobs, _) => response::json(status, &self.into_job_error()),
            // Why it is unavailable is the operator's to know.
            (HttpApi::Runs, Self::Check(CheckError::LanguageUnavailable(_))) => {
                response::error(status, "language unavailable")
            }
            (HttpApi::Runs, _) => response::error(status, &self.to_string()),
        };
        let headers = response.headers_mut();
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_over_soon {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(Ok(range)) =
            range.map(|bytes| HeaderValue::try_from(format!("bytes */{bytes}")))
        {
            headers.insert(CONTENT_RANGE, range);
        }
        response.extensions_mut().insert(told);
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.answer(HttpApi::Runs)
    }
}
