//! Responses of `POST /run`.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::check::run::CheckReport;
use crate::http::response::{error, json};
use cofferdam_core::{LimitKind, RunReport, Usage};

const OUTCOME: HeaderName = HeaderName::from_static("x-run-outcome");
const CPU_MS: HeaderName = HeaderName::from_static("x-run-cpu-ms");
const WALL_MS: HeaderName = HeaderName::from_static("x-run-wall-ms");
const MEMORY_PEAK_BYTES: HeaderName = HeaderName::from_static("x-run-memory-peak-bytes");
const OOM_KILLS: HeaderName = HeaderName::from_static("x-run-oom-kills");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The body of a finished run, with keys in the order of the contract.
#[derive(Debug, Serialize)]
pub struct RunBody<'a> {
    exit_code: Option<u8>,
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
    /// Only on an event stream, which cannot add headers any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
}

impl<'a> RunBody<'a> {
    fn of(run: &'a RunReport) -> Self {
        Self {
            exit_code: run.outcome.shell_code(),
            stdout: run.stdout.text(),
            stderr: run.stderr.text(),
            outcome: None,
        }
    }

    /// Returns the body of a stream's last event.
    pub fn with_outcome(run: &'a RunReport) -> Self {
        Self { outcome: Some(run.outcome.word()), ..Self::of(run) }
    }
}

/// Returns the response for a finished run.
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
    if let Some(kills) = run.usage.oom_kills {
        headers.insert(OOM_KILLS, kills.into());
    }
    if let Ok(timing) = HeaderValue::try_from(server_timing(report)) {
        headers.insert(SERVER_TIMING, timing);
    }
    response
}

/// Returns the sandbox's peak. `rusage` reports another value: that of the largest process.
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
