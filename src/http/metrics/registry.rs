//! The metrics of one server.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::counts::HttpCounts;
use super::evaluations::{PublicCollector, SEED_COUNTERS};
use super::families::ServiceCollector;
use super::process::ProcessMetrics;
use crate::case::service::{CaseRunCounts, CaseRuns};
use crate::evaluation::service::{EvaluationCounts, Evaluations};
use crate::http::request::accepts;
use crate::http::services::Services;
use crate::job::{JobMetrics, Jobs};
use cofferdam_core::sync::counter::Counter;

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type that every scraper reads, and browsers display.
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of one server.
pub struct Metrics {
    registry: Registry,
    /// What everybody may see.
    public: Registry,
    jobs: Option<Arc<dyn Jobs>>,
    evaluations: Option<Arc<dyn Evaluations>>,
    cases: Option<Arc<dyn CaseRuns>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers the metrics of `services`, and of a server that counts
    /// in `counts` and serves at most `connections_max` connections. `log_dropped` counts dropped
    /// log lines.
    pub fn new(
        services: Services,
        counts: Arc<HttpCounts>,
        connections_max: usize,
        log_dropped: Arc<Counter>,
    ) -> Self {
        let process = ProcessMetrics::new();
        let (jobs, evaluations) = (services.jobs.clone(), services.evaluations.clone());
        let cases = services.cases.clone();
        let mut public = Registry::default();
        if let Some(evaluations) = &services.evaluations {
            public.register_collector(Box::new(PublicCollector(Arc::clone(evaluations))));
        }
        let exposed = ServiceCollector { services, counts, connections_max, log_dropped, process };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(exposed));
        Self { registry, public, jobs, evaluations, cases }
    }

    /// Returns the counters of the evaluations, if there are any.
    pub fn evaluations(&self) -> Option<EvaluationCounts> {
        self.evaluations.as_ref().map(|evaluations| evaluations.counts())
    }

    /// Returns what is counted of Cases, if there are any.
    pub fn cases(&self) -> Option<CaseRunCounts> {
        self.cases.as_ref().map(|cases| cases.counts())
    }

    /// Returns the metrics of the jobs, if there are any.
    pub fn jobs(&self) -> Option<JobMetrics> {
        self.jobs.as_ref().map(|jobs| jobs.metrics())
    }

    /// Returns all metrics, or only those for everybody, as text, in the format that `headers` ask for, and its media type.
    pub fn text(
        &self,
        headers: &HeaderMap,
        is_public: bool,
    ) -> Result<(String, &'static str), fmt::Error> {
        let mut text = String::new();
        encode(&mut text, if is_public { &self.public } else { &self.registry })?;
        Ok(match accepts(headers, OPEN_METRICS) {
            true => (text, OPEN_METRICS_TYPE),
            false => (from_open_metrics(&text), PLAIN_TYPE),
        })
    }
}

/// Converts OpenMetrics text to the older text format 0.0.4: a counter's family takes the name of
/// its samples, and there is no end mark.
fn from_open_metrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        // The `HELP` line of a family precedes its `TYPE` line.
        let typed = match line.starts_with("# HELP ") {
            true => lines.peek().copied().unwrap_or_default(),
            false => line,
        };
        let is_counter = typed.starts_with("# TYPE ") && typed.ends_with(" counter");
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", word, name, rest] if is_counter => {
                plain.extend(["# ", word, " ", name, "_total ", rest]);
            }
            ["#", "TYPE", name, _] if SEED_COUNTERS.contains(&name) => {
                plain.extend(["# TYPE ", name, " counter"]);
            }
            _ => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_takes_the_name_of_its_samples_and_the_rest_stays() {
        let open = "# HELP runs How many counter\n# TYPE runs counter\nruns_total{a=\"# TYPE x counter\"} 1\n\
                    # HELP open Now.\n# TYPE open gauge\nopen 2\n\
                    # HELP term_executor_evaluations_failed A gauge\n\
                    # TYPE term_executor_evaluations_failed gauge\n\
                    term_executor_evaluations_failed 2\n\
                    # HELP took_seconds So long.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                    took_seconds_sum 0.5\n# EOF\n";
        let plain = "# HELP runs_total How many counter\n# TYPE runs_total counter\nruns_total{a=\"# TYPE x counter\"} 1\n\
                     # HELP open Now.\n# TYPE open gauge\nopen 2\n\
                     # HELP term_executor_evaluations_failed A gauge\n\
                     # TYPE term_executor_evaluations_failed counter\n\
                     term_executor_evaluations_failed 2\n\
                     # HELP took_seconds So long.\n# TYPE took_seconds histogram\n\
                     took_seconds_sum 0.5\n";
        assert_eq!(from_open_metrics(open), plain);
    }
}
