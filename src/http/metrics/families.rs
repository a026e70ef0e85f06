//! The metric families: names, help texts and current values.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

use super::counts::HttpCounts;
use super::process::ProcessMetrics;
use crate::check::metrics::CheckMetrics;
use crate::http::checks::Checks;
use crate::job::{JobMetrics, Jobs};
use cofferdam_core::job::JobStatus;
use cofferdam_core::sync::counter::{Counter, DurationCounts};
use cofferdam_core::{SandboxMetrics, StandbyMetrics};

/// Collects the metrics of the service on each scrape.
pub struct ServiceCollector {
    pub checks: Arc<dyn Checks>,
    /// `None` if the server has no jobs: then the job metrics are absent, not zero.
    pub jobs: Option<Arc<dyn Jobs>>,
    pub counts: Arc<HttpCounts>,
    pub connections_max: usize,
    pub log_dropped: Arc<Counter>,
    pub process: ProcessMetrics,
}

impl fmt::Debug for ServiceCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServiceCollector").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Collector for ServiceCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = FamilyEncoder(encoder);
        families.build()?;
        let figures = self.checks.figures();
        families.runs(&figures)?;
        if let Some(jobs) = &self.jobs {
            families.jobs(&jobs.figures())?;
        }
        families.standby(&figures.standby)?;
        families.sandbox(&figures.sandbox)?;
        families.http(&self.counts, self.connections_max)?;
        let help = "Log lines that were dropped because stderr was not read.";
        families.counter("cofferdam_log_lines_dropped", help, &self.log_dropped.get())?;
        families.process(&self.process)
    }
}

/// The labels of one metric.
type Labels<'a> = Vec<(&'static str, &'a str)>;

struct FamilyEncoder<'a>(DescriptorEncoder<'a>);

impl FamilyEncoder<'_> {
    fn build(&mut self) -> fmt::Result {
        let labels =
            vec![("version", env!("CARGO_PKG_VERSION")), ("target", env!("COFFERDAM_TARGET"))];
        let help = "Version and target of this program: always 1.";
        self.gauges("cofferdam_build_info", help, [(labels, 1_u64)])
    }

    fn runs(&mut self, figures: &CheckMetrics) -> fmt::Result {
        let runs = figures.runs.iter().map(|run| {
            (vec![("language", run.language.as_str()), ("outcome", run.outcome)], run.count)
        });
        self.counters("cofferdam_runs", "Runs that have ended, by language and outcome.", runs)?;
        let phases = figures.phases.iter().map(|(phase, took)| (vec![("phase", *phase)], took));
        let help = "How long each phase of a run took.";
        self.histograms("cofferdam_run_phase_seconds", help, phases)?;
        self.gauge("cofferdam_slots", "Runs there may be at once.", figures.slots as u64)?;
        let help = "Runs in progress.";
        self.gauge("cofferdam_slots_in_use", help, figures.slots_in_use as u64)?;
        let help = "Whether new runs are refused because the service is shutting down.";
        self.gauge("cofferdam_draining", help, u64::from(figures.draining))
    }

    fn jobs(&mut self, figures: &JobMetrics) -> fmt::Result {
        // States without any job yet are exposed as zero.
        let count = |status: JobStatus| {
            let counted = figures.ended.iter().find(|(known, _)| *known == status);
            counted.map_or(0, |(_, count)| *count)
        };
        let ended = JobStatus::ALL.into_iter().filter(|status| status.is_terminal());
        let ended = ended.map(|status| (vec![("status", status.word())], count(status)));
        self.counters("cofferdam_jobs", "Jobs that have ended, by their last state.", ended)?;
        self.gauge("cofferdam_jobs_queued", "Jobs that wait.", figures.queued as u64)?;
        let help = "The maximum number of queued jobs.";
        self.gauge("cofferdam_jobs_queue_max", help, figures.queue_max as u64)?;
        self.gauge("cofferdam_jobs_running", "Jobs that run now.", figures.running as u64)?;
        let help = "The maximum number of concurrent jobs.";
        self.gauge("cofferdam_jobs_workers", help, figures.workers as u64)
    }

    fn standby(&mut self, figures: &StandbyMetrics) -> fmt::Result {
        let help = "The maximum number of prepared sandboxes.";
        self.gauge("cofferdam_standby_boxes_max", help, figures.boxes_max as u64)?;
        let help = "Prepared sandboxes that are ready.";
        self.gauge("cofferdam_standby_boxes_ready", help, figures.ready as u64)?;
        let help = "Sandboxes prepared so far.";
        self.counter("cofferdam_standby_boxes_made", help, &figures.made)?;
        let help = "Prepared sandboxes that a run used.";
        self.counter("cofferdam_standby_boxes_used", help, &figures.used)?;
        let help = "Prepared sandboxes that were discarded without a run.";
        self.counter("cofferdam_standby_boxes_dropped", help, &figures.dropped)?;
        let help = "Sandboxes that could not be prepared.";
        self.counter("cofferdam_standby_boxes_failed", help, &figures.failed)
    }

    fn sandbox(&mut self, figures: &SandboxMetrics) -> fmt::Result {
        let help = "Sandboxes that did not die in time after SIGKILL.";
        self.counter("cofferdam_kill_failures", help, &figures.kill_failures)?;
        let help = "Killed sandboxes that are not dead and keep their resources.";
        self.gauge("cofferdam_undying_boxes", help, figures.undying as u64)?;
        let help =
            "The number of killed sandboxes that are not dead at which no new sandbox is made.";
        self.gauge("cofferdam_undying_boxes_max", help, figures.undying_max as u64)?;
        let help = "Dead sandboxes that wait for cleanup.";
        self.gauge("cofferdam_cleanup_backlog", help, figures.cleanup_backlog as u64)?;
        let help = "The number of dead sandboxes waiting for cleanup beyond which a response waits for its own.";
        self.gauge("cofferdam_cleanup_backlog_max", help, figures.cleanup_backlog_max as u64)?;
        let swept = &figures.swept;
        let help = "Crashed servers whose remains this start cleaned up.";
        self.gauge("cofferdam_swept_servers", help, swept.servers as u64)?;
        let help = "Sandboxes of crashed servers that this start cleaned up.";
        self.gauge("cofferdam_swept_boxes", help, swept.boxes as u64)?;
        let help = "Processes that were alive in such sandboxes.";
        self.gauge("cofferdam_swept_processes", help, swept.processes as u64)?;
        let controls = figures.controls.iter();
        let controls = controls
            .map(|(control, enforced)| (vec![("control", control.as_str())], u64::from(*enforced)));
        let help = "Whether this host enforces a control.";
        self.gauges("cofferdam_control_enforced", help, controls)
    }

    fn http(&mut self, counts: &HttpCounts, connections_max: usize) -> fmt::Result {
        let refusals = counts.refusals().map(|(reason, count)| (vec![("reason", reason)], count));
        let help = "Requests without a report, by reason.";
        self.counters("cofferdam_refusals", help, refusals)?;
        let help = "Connections of clients.";
        self.gauge("cofferdam_connections", help, counts.connections() as u64)?;
        let help = "The maximum number of client connections; more wait.";
        self.gauge("cofferdam_connections_max", help, connections_max as u64)
    }

    fn process(&mut self, process: &ProcessMetrics) -> fmt::Result {
        let now = process.now();
        if let Some(cpu) = now.cpu {
            let help = "CPU time of this process, without sandboxes.";
            self.counter("process_cpu_seconds", help, &cpu.as_secs_f64())?;
        }
        for (name, help, figure) in [
            ("process_resident_memory_bytes", "Memory in RAM.", now.resident_bytes),
            ("process_virtual_memory_bytes", "Memory that is mapped.", now.virtual_bytes),
            ("process_threads", "Threads.", now.threads),
            ("process_open_fds", "Open descriptors.", now.open_fds),
            ("process_max_fds", "Descriptors there may be.", now.max_fds),
            (
                "process_start_time_seconds",
                "When the process began, in seconds since 1970.",
                process.started_seconds(),
            ),
        ] {
            if let Some(figure) = figure {
                self.gauge(name, help, figure)?;
            }
        }
        Ok(())
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'_>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: &impl EncodeCounterValue,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, f64>(value, None)
    }

    fn counters<'b>(
        &mut self,
        name: &'static str,
        help: &'static str,
        figures: impl IntoIterator<Item = (Labels<'b>, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in figures {
            let mut one = family.encode_family(&labels)?;
            one.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauges<'b>(
        &mut self,
        name: &'static str,
        help: &'static str,
        figures: impl IntoIterator<Item = (Labels<'b>, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in figures {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn histograms<'b>(
        &mut self,
        name: &'static str,
        help: &'static str,
        figures: impl IntoIterator<Item = (Labels<'b>, &'b DurationCounts)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        for (labels, took) in figures {
            let mut one = family.encode_family(&labels)?;
            let (sum, count) = (took.sum_seconds, took.count());
            one.encode_histogram::<NoLabelSet>(sum, count, &took.buckets, None)?;
        }
        Ok(())
    }
}
