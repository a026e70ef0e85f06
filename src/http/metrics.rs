//! `GET /metrics`: the figures of the service, of the front and of this process, as scrapers read them.

mod families;
mod plain_text;
mod process;

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::families::Exposed;
use self::process::Process;
use super::accept::accepts;
use super::checks::Checks;
use super::counts::FrontCounts;
use super::origin;
use super::refusal::Refusal;
use super::router::Front;
use crate::job::{JobMetrics, Jobs};
use cofferdam_core::sync::counter::Counter;

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What every scraper reads, and a person too.
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All that one server exposes.
pub struct Metrics {
    registry: Registry,
    jobs: Option<Arc<dyn Jobs>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The figures of `checks`, of `jobs` where there are any, and of a front that counts in
    /// `counts` and serves at most `connections_max` connections; `log_dropped` counts
    /// lines of the log.
    pub fn new(
        checks: Arc<dyn Checks>,
        jobs: Option<Arc<dyn Jobs>>,
        counts: Arc<FrontCounts>,
        connections_max: usize,
        log_dropped: Arc<Counter>,
    ) -> Self {
        let process = Process::look();
        let jobs_exposed = jobs.clone();
        let exposed =
            Exposed { checks, jobs: jobs_exposed, counts, connections_max, log_dropped, process };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(exposed));
        Self { registry, jobs }
    }

    /// The figures of the jobs, where there are any.
    pub fn jobs(&self) -> Option<JobMetrics> {
        self.jobs.as_ref().map(|jobs| jobs.figures())
    }

    /// All of them as text, in the form that `headers` ask for.
    fn text(&self, headers: &HeaderMap) -> Result<(String, &'static str), fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(match accepts(headers, OPEN_METRICS) {
            true => (text, OPEN_METRICS_TYPE),
            false => (plain_text::from_open_metrics(&text), PLAIN_TYPE),
        })
    }
}

/// Answers a scraper. A page of another origin is no scraper, whatever its method.
pub async fn answer(State(front): State<Arc<Front>>, headers: HeaderMap) -> Response {
    if !origin::is_allowed(&headers, &front.origins_allow) {
        return Refusal::CrossOrigin.into_response();
    }
    match front.metrics.text(&headers) {
        Ok((text, mime)) => {
            let mut response = Response::new(text.into());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
            response
        }
        Err(error) => {
            log::error!("metrics: {error}");
            Refusal::Internal.into_response()
        }
    }
}
