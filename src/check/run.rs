//! `/run`: one check in a private copy of the workspace of its language.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::languages::{Languages, environment};
use super::last_words::add_last_words;
use crate::check::lang::{FileToWrite, Language, files_for, plain_words};
use crate::check::metrics::{CheckMetrics, RunCounts};
use crate::check::request::CheckRequest;
use crate::check::status::{
    Examined, HostReport, PrestartStatus, ServiceStatus, SlotsStatus, StandbyStatus,
};
use crate::executor::{Executor, RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::permits::{Permit, Permits};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Limits, OutputSink, PrestartMetrics, RunReport, RunSpec, SetupFailure, StdinSource,
    WarmSandboxes, Watch,
};

/// Where the workspace is in a sandbox.
const WORKSPACE: &str = "/workspace";

/// Why a check has no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The request is invalid. The text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The language's workspace or toolchain is not usable here.
    #[error("language unavailable: {0}")]
    LanguageUnavailable(String),
    /// Every slot is in use.
    #[error("runner busy")]
    Busy,
    /// The service refuses new runs.
    #[error("draining")]
    Draining,
    /// The sandbox could not be created. User code has not run.
    #[error(transparent)]
    Sandbox(SetupFailure),
}

/// A finished check.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The report of the run.
    pub run: RunReport,
    /// From admission to the start of preparation.
    pub queued: Duration,
    /// The line at the end of stderr that no program wrote: the signal that ended the program, in
    /// the words of a shell. The sink did not get it.
    pub last_words: Option<String>,
}

/// The settings of all checks.
#[derive(Debug)]
pub struct CheckSettings {
    /// The most concurrent runs.
    pub concurrency: usize,
    /// The most prepared sandboxes.
    pub standby_max: usize,
    /// The limits. The request sets the wall time.
    pub limits: Limits,
    /// Variables of the service's environment that are passed to runs.
    pub passed_env: BTreeMap<String, String>,
    /// The result of probing each control.
    pub examined: Examined,
}

/// Admits checks, runs them, and drains.
#[derive(Debug)]
pub struct CheckRunner {
    executor: Arc<SandboxExecutor>,
    languages: Languages,
    settings: CheckSettings,
    slots: Arc<Permits>,
    counts: RunCounts,
    draining: AtomicBool,
    live: Mutex<LiveRuns>,
    host: HostReport,
    since: Instant,
}

/// The live runs, by slot.
#[derive(Debug, Default)]
struct LiveRuns {
    tokens: BTreeMap<usize, CancelToken>,
    ended: bool,
}

/// A validated check that holds a slot.
#[derive(Debug)]
pub struct AdmittedCheck {
    runner: Arc<CheckRunner>,
    slot: Permit,
    lang_slug: String,
    workspace: PathBuf,
    files: Vec<FileToWrite>,
    spec: RunSpec,
    admitted: Instant,
}

impl CheckRunner {
    /// A runner over a backend that is prepared for as many runs as there are slots.
    pub fn new(
        executor: Arc<SandboxExecutor>,
        languages: Languages,
        mut settings: CheckSettings,
    ) -> Arc<Self> {
        let sandbox = executor.sandbox();
        let examined = std::mem::take(&mut settings.examined);
        let host = HostReport::new(sandbox.enforced(), sandbox.not_enforced(), examined);
        // A shell exports PWD, and most programs run below one. Some run without.
        settings.passed_env.entry("PWD".to_owned()).or_insert_with(|| WORKSPACE.to_owned());
        Arc::new(Self {
            slots: Permits::new(settings.concurrency),
            counts: RunCounts::of(languages.slugs()),
            executor,
            languages,
            settings,
            draining: AtomicBool::new(false),
            live: Mutex::default(),
            host,
            since: Instant::now(),
        })
    }

    /// The public status of the service. Does not block and probes nothing.
    pub fn status(&self) -> ServiceStatus<'_> {
        ServiceStatus {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.since.elapsed().as_secs(),
            draining: self.is_draining(),
            slots: SlotsStatus { in_use: self.slots.taken(), capacity: self.settings.concurrency },
            standby: StandbyStatus {
                ready: self.executor.standby_metrics().ready,
                max: self.settings.standby_max,
            },
            prestart: PrestartStatus::of(self.executor.prestart_metrics()),
            languages: self.languages.available(),
            host: &self.host,
        }
    }

    /// Validates `request` against the language table, then takes a slot.
    pub fn admit(self: &Arc<Self>, request: CheckRequest) -> Result<AdmittedCheck, CheckError> {
        if self.is_draining() {
            return Err(CheckError::Draining);
        }
        let CheckRequest { lang_slug, solution_text, checker_text, asserts, timeout } = request;
        let language = self
            .languages
            .get(&lang_slug)
            .ok_or_else(|| CheckError::Invalid("unsupported lang_slug".to_owned()))?;
        let files = files_for(language, solution_text, checker_text, asserts)
            .map_err(|error| CheckError::Invalid(error.to_string()))?;
        let (workspace, command) = self
            .languages
            .command(language, &self.executor)
            .map_err(CheckError::LanguageUnavailable)?;
        let nul = |_| CheckError::LanguageUnavailable("its command holds a NUL".to_owned());
        let plain = plain_words(&command).map(|words| words.into_iter().map(CString::new));
        let without_shell = plain.map(Iterator::collect).transpose().map_err(nul)?;
        let command = CString::new(command).map_err(nul)?;
        if self.executor.sandbox().is_crowded() {
            return Err(CheckError::Busy);
        }
        let slot = self.slots.try_enter().ok_or(CheckError::Busy)?;
        let prestarts = self.executor.prestarts();
        let prestart = prestarts.then(|| self.languages.prestart(language, &workspace)).flatten();
        Ok(AdmittedCheck {
            runner: Arc::clone(self),
            slot,
            lang_slug: language.slug.clone(),
            workspace,
            files,
            spec: RunSpec { without_shell, prestart, ..self.spec(language, command, timeout) },
            admitted: Instant::now(),
        })
    }

    /// The program of a check.
    fn spec(&self, language: &Language, command: CString, timeout: Duration) -> RunSpec {
        let CheckSettings { limits, passed_env, .. } = &self.settings;
        let mut limits = limits.clone().with_wall(timeout);
        limits.memory_bytes_max =
            limits.memory_bytes_max.max(language.memory_bytes_max.unwrap_or(0));
        limits.disk_bytes_max = limits.disk_bytes_max.max(language.disk_bytes_max.unwrap_or(0));
        RunSpec {
            argv: vec![c"sh".to_owned(), c"-c".to_owned(), command],
            env: environment(Some(language), passed_env),
            workdir: WORKSPACE.into(),
            stdin: StdinSource::Null,
            limits,
            ..RunSpec::default()
        }
    }

    /// Refuses new runs from now on, and prepares no more sandboxes.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.executor.close_standby();
    }

    /// Whether new runs are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Cancels every live run, and every later one when it begins.
    pub fn cancel_all(&self) {
        let mut live = self.live();
        live.ended = true;
        live.tokens.values().for_each(CancelToken::cancel);
    }

    /// The counters.
    pub fn metrics(&self) -> CheckMetrics {
        let (runs, phases) = self.counts.read();
        CheckMetrics {
            runs,
            phases,
            slots: self.settings.concurrency,
            slots_in_use: self.slots.taken(),
            draining: self.is_draining(),
            standby: self.executor.standby_metrics(),
            prestart: self.prestart_metrics(),
            sandbox: self.executor.sandbox().metrics(),
        }
    }

    /// The metrics of runtimes started ahead, zeros of languages without any included. Kernels have
    /// labels of their own.
    fn prestart_metrics(&self) -> PrestartMetrics {
        let mut metrics = self.executor.prestart_metrics();
        let none = |slug: &str| WarmSandboxes { label: slug.to_owned(), count: 0, bytes: 0 };
        for slug in self.languages.slugs() {
            if !metrics.ready.iter().any(|warm| warm.label == slug) {
                metrics.ready.push(none(slug));
            }
        }
        metrics.ready.sort_by(|one, other| one.label.cmp(&other.label));
        metrics
    }

    /// Waits until no run is live; false if the deadline passed first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        self.slots.wait_idle(deadline)
    }

    /// Registers the token of the run in `slot` for [`CheckRunner::cancel_all`].
    fn enlist(&self, slot: usize, cancel: &CancelToken) {
        let mut live = self.live();
        if live.ended {
            cancel.cancel();
        }
        live.tokens.insert(slot, cancel.clone());
    }

    fn live(&self) -> MutexGuard<'_, LiveRuns> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedCheck {
    /// Runs the check to its end on the calling thread. The slot is free when this returns, unless
    /// the sandbox is not dead by then and still holds it.
    pub fn run(
        self,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<CheckReport, CheckError> {
        let Self { runner, slot, lang_slug, workspace, files, spec, admitted } = self;
        let queued = admitted.elapsed();
        let files: Vec<_> = files
            .iter()
            .map(|FileToWrite { path, contents }| (path, contents.as_bytes()))
            .collect();
        let slot = Arc::new(slot);
        let retained = Retained::of(slot.clone());
        let workspace = WorkspaceInput::Template { dir: Some(&workspace), files: &files };
        let input = RunInput { spec, workspace, retained };
        runner.enlist(slot.index(), &watch.cancel);
        let report = runner.executor.execute(input, watch, sink);
        // Before the slot is freed: the next run in it registers its own token.
        runner.live().tokens.remove(&slot.index());
        let report = report.map(|mut run| {
            let last_words = add_last_words(&mut run);
            CheckReport { run, queued, last_words }
        });
        runner
            .counts
            .count(&lang_slug, report.as_ref().ok().map(|report| (&report.run, report.queued)));
        report.map_err(|why| CheckError::Sandbox(why.into_failure("exec sh")))
    }
}
