//! Log lines about requests: one for the end of each run and one for each refused request. They
//! contain no text of a tenant's, no query and no secret; header values are logged only under
//! `DEBUG`.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;

use crate::check::run::{CheckError, CheckReport};
use crate::http::error::ErrorContext;
use crate::http::services::RunCheck;
use cofferdam_core::job::JobId;
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// The target of these lines, for `RUST_LOG`.
const TARGET: &str = "cofferdam::http";
/// Parts of the names of headers whose values are or may be secret.
const SECRET_WORDS: [&str; 9] = [
    "auth",
    "cookie",
    "credential",
    "key",
    "password",
    "secret",
    "signature",
    "token",
    "websocket-protocol",
];
/// How much of a path is logged, in bytes.
const PATH_BYTES_MAX: usize = 256;
/// Refused requests logged per second. Being refused costs a client nothing, but a full disk costs
/// us.
const LINES_PER_SECOND_MAX: u32 = 100;

/// Wraps `admit`, and the check that it returns, so that both run under the id of the current
/// request on any thread, and the end of the check is logged.
pub fn with_log_context(
    slug: String,
    admit: impl FnOnce() -> Result<RunCheck, CheckError> + Send + 'static,
) -> impl FnOnce() -> Result<RunCheck, CheckError> + Send + 'static {
    let id = RequestId::current();
    move || {
        let check = on_behalf_of(id.clone(), admit)?;
        Ok(Box::new(move |watch, sink| {
            on_behalf_of(id, || {
                let ended = check(watch, sink);
                match &ended {
                    Ok(report) => run_ended(&slug, report),
                    Err(error) => run_failed(&slug, error),
                }
                ended
            })
        }))
    }
}

fn run_ended(slug: &str, CheckReport { run, queued, .. }: &CheckReport) {
    log::info!(
        target: TARGET,
        slug = slug,
        outcome = run.outcome.word(),
        exit_code = run.outcome.shell_code(),
        queue_ms = milliseconds(*queued),
        prepare_ms = milliseconds(run.timings.prepare),
        run_ms = milliseconds(run.timings.run),
        cleanup_ms = milliseconds(run.timings.cleanup),
        cpu_ms = run.usage.cpu_ms,
        memory_peak_bytes = run.usage.memory_peak_bytes,
        standby = run.standby;
        "run ended"
    );
}

fn run_failed(slug: &str, error: &CheckError) {
    log::error!(target: TARGET, slug = slug, reason = error.to_string(); "run failed");
}

/// Rounds to the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The part of a request that is logged.
#[derive(Debug)]
pub struct LoggedRequest {
    method: Method,
    uri: Uri,
}

impl LoggedRequest {
    /// Takes the method and the URI of a request.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        Self { method: method.clone(), uri: uri.clone() }
    }

    /// Returns the path without its query, truncated to [`PATH_BYTES_MAX`].
    fn path(&self) -> &str {
        let path = self.uri.path();
        path.get(..path.floor_char_boundary(PATH_BYTES_MAX)).unwrap_or_default()
    }
}

/// Logs refused requests at a limited rate.
#[derive(Debug, Default)]
pub struct ErrorLog(Mutex<LogWindow>);

/// The second in which lines are counted.
#[derive(Debug, Default)]
struct LogWindow {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl ErrorLog {
    /// Logs `response` if it refuses the request.
    pub fn record(&self, logged: &LoggedRequest, response: &mut Response) {
        let Some(ErrorContext { message, is_server_fault, .. }) =
            response.extensions_mut().remove()
        else {
            return;
        };
        if !self.admit(Instant::now()) {
            return;
        }
        let level = if is_server_fault { log::Level::Warn } else { log::Level::Info };
        log::log!(
            target: TARGET,
            level,
            status = response.status().as_u16(),
            reason = message,
            method = logged.method.as_str(),
            path = logged.path();
            "refused"
        );
    }

    /// Logs a request that hyper could not parse and has answered itself.
    pub fn record_parse_error(&self, error: &hyper::Error) {
        if error.is_parse() && self.admit(Instant::now()) {
            log::info!(target: TARGET, reason = error.to_string(); "refused: no request");
        }
    }

    /// Returns whether a line may be logged at `now`. The first call in a new second logs how many
    /// lines were left out before.
    fn admit(&self, now: Instant) -> bool {
        // A count is always consistent.
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began| now.saturating_duration_since(began) >= Duration::from_secs(1);
        if window.began.is_none_or(is_over) {
            let before = std::mem::replace(
                &mut *window,
                LogWindow { began: Some(now), lines: 0, left_out: 0 },
            );
            if before.left_out > 0 {
                log::warn!(target: TARGET, count = before.left_out; "refused requests left out of the log");
            }
        }
        let is_admitted = window.lines < LINES_PER_SECOND_MAX;
        if is_admitted {
            window.lines += 1;
        } else {
            window.left_out += 1;
        }
        is_admitted
    }
}

/// Logs which client's token authorized the current request.
pub fn authorized(client: &str) {
    log::debug!(target: TARGET, client = client; "authorized");
}

/// Logs why a job's output could not be read for its followers.
pub fn output_unreadable(job: &JobId, error: &io::Error) {
    log::error!(target: TARGET, job_id = job.as_str(), reason = error.to_string(); "output unreadable");
}

/// Logs a request with its headers, for `DEBUG`.
pub fn request(logged: &LoggedRequest, headers: &HeaderMap) {
    let query = if logged.uri.query().is_some() { "?(redacted)" } else { "" };
    log::info!(
        target: TARGET,
        method = logged.method.as_str(),
        path = format!("{}{query}", logged.path()),
        headers = shown(headers);
        "request"
    );
}

/// Formats all headers, with secrets redacted.
fn shown(headers: &HeaderMap) -> String {
    let show = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = value.as_bytes();
        // A header that holds a URL can have a secret in the query.
        let (value, cut) = match value.iter().position(|byte| *byte == b'?') {
            Some(at) => (value.get(..=at).unwrap_or_default(), "(redacted)"),
            None => (value, ""),
        };
        if SECRET_WORDS.iter().any(|word| name.as_str().contains(word)) {
            format!("{name}: (redacted)")
        } else {
            format!("{name}: {}{cut}", value.escape_ascii())
        }
    };
    headers.iter().map(show).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_header_is_never_shown() {
        let mut headers = HeaderMap::new();
        let secret = [
            "authorization",
            "cookie",
            "proxy-authorization",
            "x-api-key",
            "x-csrf-token",
            "x-hub-signature-256",
        ];
        for name in secret {
            headers.append(name, HeaderValue::from_static("s3cret"));
            headers.append(name, HeaderValue::from_static("s3cret"));
        }
        headers.insert("x-a", HeaderValue::from_bytes(b"plain\xFF").unwrap());
        headers.insert("referer", HeaderValue::from_static("http://x/y?s3cret"));
        let shown = shown(&headers);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert_eq!(shown.matches("(redacted)").count(), 2 * secret.len() + 1);
        assert!(shown.contains("x-a: plain\\xff; referer: http://x/y?(redacted)"), "{shown}");
    }

    #[test]
    fn a_path_is_logged_truncated_and_without_its_query() {
        for (target, with_log_context) in [("/run?token=x", "/run"), ("/%0a", "/%0a"), ("*", "*")] {
            let logged = LoggedRequest::of(&Method::GET, &target.parse().unwrap());
            assert_eq!(logged.path(), with_log_context);
        }
        let long = format!("/{}", "x".repeat(5000)).parse().unwrap();
        assert_eq!(LoggedRequest::of(&Method::GET, &long).path().len(), PATH_BYTES_MAX);
    }

    #[test]
    fn the_rate_limit_is_per_second() {
        let lines = ErrorLog::default();
        let start = Instant::now();
        let admitted = |at: Instant| (0..300).filter(|_| lines.admit(at)).count();
        let max = LINES_PER_SECOND_MAX as usize;
        assert_eq!(admitted(start), max);
        assert_eq!(admitted(start + Duration::from_millis(999)), 0);
        assert_eq!(admitted(start + Duration::from_secs(1)), max);
    }
}
