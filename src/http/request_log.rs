//! What the front says of requests: one line for each run's end and each refusal. Nothing of a
//! tenant's, nothing of a query, no header's value but under `DEBUG`, and no secret even then.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;

use super::checks::RunCheck;
use super::error::ErrorContext;
use crate::check::run::{CheckError, CheckReport};
use cofferdam_core::job::JobId;
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// Where these lines come from, for `RUST_LOG`.
const TARGET: &str = "cofferdam::http";
/// What a header's name holds whose value is a secret, or may be.
const SECRET_WORDS: [&str; 8] =
    ["auth", "cookie", "credential", "key", "password", "secret", "signature", "token"];
/// How much of a path is with_log_context, bytes.
const PATH_BYTES_MAX: usize = 256;
/// Lines about refusals in one second. Clients cost nothing to be refused, a full disk does.
const REFUSALS_PER_SECOND_MAX: u32 = 100;

/// `admit`, and the check it gives, in the name of the request that is being
/// served now, whichever thread does them; the check tells its end.
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

/// To the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// What was asked for, as far as a line tells it.
#[derive(Debug)]
pub struct LoggedRequest {
    method: Method,
    uri: Uri,
}

impl LoggedRequest {
    /// By this method, at that place.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        Self { method: method.clone(), uri: uri.clone() }
    }

    /// The path, its beginning where it is long, without the query.
    fn path(&self) -> &str {
        let path = self.uri.path();
        path.get(..path.floor_char_boundary(PATH_BYTES_MAX)).unwrap_or_default()
    }
}

/// Tells of refusals, so many in a second.
#[derive(Debug, Default)]
pub struct ErrorLog(Mutex<LogWindow>);

/// The second that lines are counted in.
#[derive(Debug, Default)]
struct LogWindow {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl ErrorLog {
    /// A line if `response` refuses what was `asked`.
    pub fn record(&self, asked: &LoggedRequest, response: &mut Response) {
        let Some(ErrorContext { reason, is_our_fault, .. }) = response.extensions_mut().remove()
        else {
            return;
        };
        if !self.admit(Instant::now()) {
            return;
        }
        let level = if is_our_fault { log::Level::Warn } else { log::Level::Info };
        log::log!(
            target: TARGET,
            level,
            status = response.status().as_u16(),
            reason = reason,
            method = asked.method.as_str(),
            path = asked.path();
            "refused"
        );
    }

    /// A line about bytes that the parser made no request of, and has answered itself.
    pub fn record_parse_error(&self, error: &hyper::Error) {
        if error.is_parse() && self.admit(Instant::now()) {
            log::info!(target: TARGET, reason = error.to_string(); "refused: no request");
        }
    }

    /// Whether there may be a line at `now`. The first of a second says how
    /// many there might have been before.
    fn admit(&self, now: Instant) -> bool {
        // A count cannot be left half-written.
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began| now.saturating_duration_since(began) >= Duration::from_secs(1);
        if window.began.is_none_or(is_over) {
            let before = std::mem::replace(
                &mut *window,
                LogWindow { began: Some(now), lines: 0, left_out: 0 },
            );
            if before.left_out > 0 {
                log::warn!(target: TARGET, count = before.left_out; "refusals left out of the log");
            }
        }
        let is_admitted = window.lines < REFUSALS_PER_SECOND_MAX;
        if is_admitted {
            window.lines += 1;
        } else {
            window.left_out += 1;
        }
        is_admitted
    }
}

/// Whose token a request showed.
pub fn authorized(client: &str) {
    log::debug!(target: TARGET, client = client; "authorized");
}

/// What a job's followers are not with_log_context, and why.
pub fn output_unreadable(job: &JobId, error: &io::Error) {
    log::error!(target: TARGET, job_id = job.as_str(), reason = error.to_string(); "output unreadable");
}

/// The line of `DEBUG`: what was asked for, with its headers.
pub fn request(asked: &LoggedRequest, headers: &HeaderMap) {
    let query = if asked.uri.query().is_some() { "?(redacted)" } else { "" };
    log::info!(
        target: TARGET,
        method = asked.method.as_str(),
        path = format!("{}{query}", asked.path()),
        headers = shown(headers);
        "request"
    );
}

/// Every header, secrets left out.
fn shown(headers: &HeaderMap) -> String {
    let show = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = value.as_bytes();
        // Of an address, its query may hold what its path does not.
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
    fn a_path_is_told_without_its_query_and_no_longer_than_it_may_be() {
        for (target, with_log_context) in [("/run?token=x", "/run"), ("/%0a", "/%0a"), ("*", "*")] {
            let asked = LoggedRequest::of(&Method::GET, &target.parse().unwrap());
            assert_eq!(asked.path(), with_log_context);
        }
        let long = format!("/{}", "x".repeat(5000)).parse().unwrap();
        assert_eq!(LoggedRequest::of(&Method::GET, &long).path().len(), PATH_BYTES_MAX);
    }

    #[test]
    fn a_second_has_its_lines_and_the_next_one_has_as_many() {
        let lines = ErrorLog::default();
        let start = Instant::now();
        let admitted = |at: Instant| (0..300).filter(|_| lines.admit(at)).count();
        let max = REFUSALS_PER_SECOND_MAX as usize;
        assert_eq!(admitted(start), max);
        assert_eq!(admitted(start + Duration::from_millis(999)), 0);
        assert_eq!(admitted(start + Duration::from_secs(1)), max);
    }
}
