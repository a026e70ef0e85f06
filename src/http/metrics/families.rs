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
use crate::egress::{EgressCounts, EgressReason};
use crate::http::services::Services;
use crate::job::JobMetrics;
use crate::workspace::EngineMetrics;
use cofferdam_core::job::JobStatus;
use cofferdam_core::sync::counter::{Counter, DurationCounts};
use cofferdam_core::{PrestartMetrics, SandboxMetrics, StandbyMetrics, WarmSandboxes};

/// Collects the metrics of the service on each scrape.
pub struct ServiceCollector {
    /// The metrics of jobs and of the engine are absent, not zero, if there is no such service.
    pub services: Services,
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
        let metrics = self.services.checks.metrics();
        families.runs(&metrics)?;
        if let Some(jobs) = &self.services.jobs {
            families.jobs(&jobs.metrics())?;
        }
        if let Some(engine) = &self.services.engine {
            families.engine(&engine.metrics())?;
        }
        if let Some(evaluations) = &self.services.evaluations {
            families.evaluation_counts(&evaluations.counts())?;
            families.evaluations(&evaluations.metrics())?;
        }
        if let Some(cases) = &self.services.cases {
            families.cases(&cases.counts())?;
        }
        families.egress(&self.services.egress)?;
        families.standby(&metrics.standby)?;
        families.prestart(&metrics.prestart)?;
        families.sandbox(&metrics.sandbox)?;
        families.http(&self.counts, self.connections_max)?;
        let help = "Log lines that were dropped because stderr was not read.";
        families.counter("cofferdam_log_lines_dropped", help, &self.log_dropped.get())?;
        families.process(&self.process)
    }
}

/// The labels of one metric.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Encodes families of metrics.
pub struct FamilyEncoder<'a>(pub DescriptorEncoder<'a>);

impl FamilyEncoder<'_> {
    fn build(&mut self) -> fmt::Result {
        let labels =
            vec![("version", env!("CARGO_PKG_VERSION")), ("target", env!("COFFERDAM_TARGET"))];
        let help = "Version and target of this program: always 1.";
        self.gauges("cofferdam_build_info", help, [(labels, 1_u64)])
    }

    fn runs(&mut self, metrics: &CheckMetrics) -> fmt::Result {
        let runs = metrics.runs.iter().map(|run| {
            (vec![("language", run.language.as_str()), ("outcome", run.outcome)], run.count)
        });
        self.counters("cofferdam_runs", "Runs that have ended, by language and outcome.", runs)?;
        let phases = metrics.phases.iter().map(|(phase, took)| (vec![("phase", *phase)], took));
        let help = "How long each phase of a run took.";
        self.histograms("cofferdam_run_phase_seconds", help, phases)?;
        self.gauge("cofferdam_slots", "Runs there may be at once.", metrics.slots as u64)?;
        let help = "Runs in progress.";
        self.gauge("cofferdam_slots_in_use", help, metrics.slots_in_use as u64)?;
        let help = "Whether new runs are refused because the service is shutting down.";
        self.gauge("cofferdam_draining", help, u64::from(metrics.draining))
    }

    fn jobs(&mut self, metrics: &JobMetrics) -> fmt::Result {
        // States without any job yet are exposed as zero.
        let count = |status: JobStatus| {
            let counted = metrics.ended.iter().find(|(known, _)| *known == status);
            counted.map_or(0, |(_, count)| *count)
        };
        let ended = JobStatus::ALL.into_iter().filter(|status| status.is_terminal());
        let ended = ended.map(|status| (vec![("status", status.word())], count(status)));
        self.counters("cofferdam_jobs", "Jobs that have ended, by their last state.", ended)?;
        self.gauge("cofferdam_jobs_queued", "Jobs that wait.", metrics.queued as u64)?;
        let help = "The maximum number of queued jobs.";
        self.gauge("cofferdam_jobs_queue_max", help, metrics.queue_max as u64)?;
        self.gauge("cofferdam_jobs_running", "Jobs that run now.", metrics.running as u64)?;
        let help = "The maximum number of concurrent jobs.";
        self.gauge("cofferdam_jobs_workers", help, metrics.workers as u64)
    }

    fn egress(&mut self, counts: &EgressCounts) -> fmt::Result {
        let counted = counts.read();
        let requests = counted.iter().map(|known| {
            let reason = known.reason.map_or("none", EgressReason::word);
            (vec![("decision", known.decision.word()), ("reason", reason)], known.count)
        });
        let help = "Requests of programs with a network, by what became of them and why.";
        self.counters("cofferdam_egress", help, requests)
    }

    fn engine(&mut self, metrics: &EngineMetrics) -> fmt::Result {
        let help = "Workspaces.";
        self.gauge("cofferdam_workspaces", help, metrics.workspaces as u64)?;
        let help = "The maximum number of workspaces.";
        self.gauge("cofferdam_workspaces_max", help, metrics.workspaces_max as u64)?;
        let help = "Workspaces created so far.";
        self.counter("cofferdam_workspaces_created", help, &metrics.created)?;
        let help = "Workspaces that began with the files of another or of a snapshot.";
        self.counter("cofferdam_workspaces_forked", help, &metrics.forked)?;
        let ended = metrics.ended.iter().map(|(why, count)| (vec![("reason", *why)], *count));
        let help = "Workspaces that have ended, by the reason.";
        self.counters("cofferdam_workspaces_ended", help, ended)?;
        let help = "Workspaces that are in the store until they are used.";
        self.gauge("cofferdam_workspaces_parked", help, metrics.parked as u64)?;
        let results = [("ok", metrics.saved), ("failed", metrics.saves_failed)];
        let saves = results.into_iter().map(|(result, count)| (vec![("result", result)], count));
        let help = "Saves of workspaces to the store, by the result.";
        self.counters("cofferdam_workspaces_saves", help, saves)?;
        let help = "Bytes of workspaces in memory, with what their programs may still write.";
        self.gauge("cofferdam_workspaces_disk_bytes", help, metrics.disk_bytes)?;
        let help = "The maximum of such bytes.";
        self.gauge("cofferdam_workspaces_disk_bytes_max", help, metrics.disk_bytes_max)?;
        let help = "Programs that run in workspaces.";
        self.gauge("cofferdam_engine_runs", help, metrics.runs as u64)?;
        let help = "The maximum number of concurrent programs.";
        self.gauge("cofferdam_engine_runs_max", help, metrics.runs_max as u64)?;
        let help = "Sessions whose program runs.";
        self.gauge("cofferdam_sessions", help, metrics.sessions as u64)?;
        let help = "Live kernels of contexts.";
        self.gauge("cofferdam_kernels", help, metrics.kernels as u64)?;
        let help = "The maximum number of live kernels.";
        self.gauge("cofferdam_kernels_max", help, metrics.kernels_max as u64)?;
        let help = "Snapshots of workspaces.";
        self.gauge("cofferdam_snapshots", help, metrics.snapshots as u64)?;
        let help = "The maximum number of snapshots.";
        self.gauge("cofferdam_snapshots_max", help, metrics.snapshots_max as u64)?;
        let refused = metrics.refused.iter().map(|(code, count)| (vec![("code", *code)], *count));
        let help = "Requests to the engine that a limit refused, by error code.";
        self.counters("cofferdam_engine_refusals", help, refused)
    }

    fn standby(&mut self, metrics: &StandbyMetrics) -> fmt::Result {
        let help = "The maximum number of prepared sandboxes.";
        self.gauge("cofferdam_standby_boxes_max", help, metrics.sandboxes_max as u64)?;
        let help = "Prepared sandboxes that are ready.";
        self.gauge("cofferdam_standby_boxes_ready", help, metrics.ready as u64)?;
        let help = "Sandboxes prepared so far.";
        self.counter("cofferdam_standby_boxes_made", help, &metrics.made)?;
        let help = "Prepared sandboxes that a run used.";
        self.counter("cofferdam_standby_boxes_used", help, &metrics.used)?;
        let help = "Prepared sandboxes that were discarded without a run.";
        self.counter("cofferdam_standby_boxes_dropped", help, &metrics.dropped)?;
        let help = "Sandboxes that could not be prepared.";
        self.counter("cofferdam_standby_boxes_failed", help, &metrics.failed)
    }

    fn prestart(&mut self, metrics: &PrestartMetrics) -> fmt::Result {
        let ready = |value: fn(&WarmSandboxes) -> u64| {
            let ready = metrics.ready.iter();
            ready.map(move |warm| (vec![("language", warm.label.as_str())], value(warm)))
        };
        let help = "Sandboxes whose runtime is started and waits for a run, by language.";
        self.gauges("cofferdam_prestart_boxes_ready", help, ready(|warm| warm.count as u64))?;
        let help = "The memory of these sandboxes in bytes, by language.";
        self.gauges("cofferdam_prestart_bytes", help, ready(|warm| warm.bytes))?;
        let help = "The maximum memory of all these sandboxes in bytes.";
        self.gauge("cofferdam_prestart_bytes_max", help, metrics.bytes_max)?;
        let help = "Runtimes started ahead of runs so far.";
        self.counter("cofferdam_prestart_boxes_made", help, &metrics.made)?;
        let help = "Runtimes started ahead that a run used.";
        self.counter("cofferdam_prestart_boxes_used", help, &metrics.used)?;
        let help = "Runtimes started ahead that were discarded without a run.";
        self.counter("cofferdam_prestart_boxes_dropped", help, &metrics.dropped)?;
        let help = "Runtimes that did not get ready ahead of a run.";
        self.counter("cofferdam_prestart_boxes_failed", help, &metrics.failed)?;
        let help = "The CPU time of runtimes until they were ready, in seconds.";
        self.counter("cofferdam_prestart_cpu_seconds", help, &metrics.cpu.as_secs_f64())
    }

    fn sandbox(&mut self, metrics: &SandboxMetrics) -> fmt::Result {
        let help = "Sandboxes that did not die in time after SIGKILL.";
        self.counter("cofferdam_kill_failures", help, &metrics.kill_failures)?;
        let help = "Killed sandboxes that are not dead and keep their resources.";
        self.gauge("cofferdam_undying_boxes", help, metrics.undying as u64)?;
        let help =
            "The number of killed sandboxes that are not dead at which no new sandbox is made.";
        self.gauge("cofferdam_undying_boxes_max", help, metrics.undying_max as u64)?;
        let help = "Dead sandboxes that wait for cleanup.";
        self.gauge("cofferdam_cleanup_backlog", help, metrics.cleanup_backlog as u64)?;
        let help = "The number of dead sandboxes waiting for cleanup beyond which a response waits for its own.";
        self.gauge("cofferdam_cleanup_backlog_max", help, metrics.cleanup_backlog_max as u64)?;
        let swept = &metrics.swept;
        let help = "Crashed servers whose remains this start cleaned up.";
        self.gauge("cofferdam_swept_servers", help, swept.servers as u64)?;
        let help = "Sandboxes of crashed servers that this start cleaned up.";
        self.gauge("cofferdam_swept_boxes", help, swept.sandboxes as u64)?;
        let help = "Processes that were alive in such sandboxes.";
        self.gauge("cofferdam_swept_processes", help, swept.processes as u64)?;
        let controls = metrics.controls.iter();
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

    /// One counter.
    pub fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: &impl EncodeCounterValue,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, f64>(value, None)
    }

    /// One counter for each set of labels.
    pub fn counters<'b>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels<'b>, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in samples {
            let mut one = family.encode_family(&labels)?;
            one.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    /// One gauge.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// One gauge for each set of labels.
    pub fn gauges<'b>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels<'b>, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// One histogram for each set of labels.
    pub fn histograms<'b>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels<'b>, &'b DurationCounts)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        for (labels, took) in samples {
            let mut one = family.encode_family(&labels)?;
            let (sum, count) = (took.sum_seconds, took.count());
            one.encode_histogram::<NoLabelSet>(sum, count, &took.buckets, None)?;
        }
        Ok(())
    }
}
