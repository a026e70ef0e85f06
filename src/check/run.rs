//! `/run`: one check in a private copy of its language's workspace.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::languages::{Languages, environment};
use super::last_words::add_last_words;
use crate::check::lang::{FileToWrite, Language, files_for, plain_words};
use crate::check::metrics::{Figures, RunCounts};
use crate::check::request::CheckRequest;
use crate::check::status::{Examined, HostReport, ServiceStatus, SlotsStatus, StandbyStatus};
use crate::executor::{Job, Sandboxed};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::permits::{Permit, Permits};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Limits, OutputSink, ProgramFile, RunReport, RunSpec, SetupFailure, StdinSource, Watch,
    WorkspaceFill,
};

/// Where the workspace is in a box.
const WORKSPACE: &str = "/workspace";

/// Why a check gave no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The request is at fault; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The language's workspace or toolchain is not usable here.
    #[error("language unavailable: {0}")]
    LanguageUnavailable(String),
    /// Every slot is taken.
    #[error("runner busy")]
    Busy,
    /// The service takes no new runs.
    #[error("draining")]
    Draining,
    /// The box could not be made; user code has not run.
    #[error(transparent)]
    Sandbox(SetupFailure),
}

/// A finished check.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// What the sandbox says of it.
    pub run: RunReport,
    /// From admission to the start of preparation.
    pub queued: Duration,
    /// What is at the end of its stderr and no program wrote: the signal that ended it, in a
    /// shell's words. The sink never had it.
    pub last_words: Option<String>,
}

/// What every check has in common.
#[derive(Debug)]
pub struct CheckSettings {
    /// Runs at once.
    pub concurrency: usize,
    /// Boxes made ahead of runs.
    pub standby_max: usize,
    /// The bounds; the wall time is the request's own.
    pub limits: Limits,
    /// Variables of the service's environment that runs get, with their values.
    pub passed_env: BTreeMap<String, String>,
    /// What was found when each control was tried.
    pub examined: Examined,
}

/// The use case: admission, the run, the drain.
#[derive(Debug)]
pub struct CheckRunner {
    executor: Arc<Sandboxed>,
    languages: Languages,
    settings: CheckSettings,
    slots: Arc<Permits>,
    counts: RunCounts,
    draining: AtomicBool,
    live: Mutex<Live>,
    host: HostReport,
    since: Instant,
}

/// The runs that can still be asked to end.
#[derive(Debug, Default)]
struct Live {
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
    /// A runner over a backend that was prepared for as many runs as there are slots.
    pub fn new(
        executor: Arc<Sandboxed>,
        languages: Languages,
        mut settings: CheckSettings,
    ) -> Arc<Self> {
        let sandbox = executor.sandbox();
        let examined = std::mem::take(&mut settings.examined);
        let host = HostReport::new(sandbox.enforced(), sandbox.not_enforced(), examined);
        // As shells export it: most programs have one before them, and some have none.
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

    /// What there is to know of the service from outside. It waits for nothing and tries nothing.
    pub fn status(&self) -> ServiceStatus<'_> {
        ServiceStatus {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.since.elapsed().as_secs(),
            draining: self.is_draining(),
            slots: SlotsStatus { in_use: self.slots.taken(), capacity: self.settings.concurrency },
            standby: StandbyStatus {
                ready: self.executor.standby_figures().ready,
                max: self.settings.standby_max,
            },
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
        Ok(AdmittedCheck {
            runner: Arc::clone(self),
            slot,
            lang_slug: language.slug.clone(),
            workspace,
            files,
            spec: RunSpec { without_shell, ..self.spec(language, command, timeout) },
            admitted: Instant::now(),
        })
    }

    /// What a check executes in its copy of the workspace.
    fn spec(&self, language: &Language, command: CString, timeout: Duration) -> RunSpec {
        let CheckSettings { limits, passed_env, .. } = &self.settings;
        let mut limits = limits.clone().with_wall(timeout);
        limits.memory_bytes_max =
            limits.memory_bytes_max.max(language.memory_bytes_max.unwrap_or(0));
        limits.disk_bytes_max = limits.disk_bytes_max.max(language.disk_bytes_max.unwrap_or(0));
        RunSpec {
            argv: vec![c"sh".to_owned(), c"-c".to_owned(), command],
            program: ProgramFile::Named,
            without_shell: None,
            env: environment(Some(language), passed_env),
            workdir: WORKSPACE.into(),
            stdin: StdinSource::Null,
            limits,
            workspace: WorkspaceFill::Own,
            binds: Vec::new(),
            tmpfs: Vec::new(),
        }
    }

    /// Refuses new runs from now on, and has no boxes made for any.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.executor.close_standby();
    }

    /// Whether new runs are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Asks every live run to end, and every later one as soon as it begins.
    pub fn cancel_all(&self) {
        let mut live = self.live();
        live.ended = true;
        live.tokens.values().for_each(CancelToken::cancel);
    }

    /// What was counted so far, and what there is now.
    pub fn figures(&self) -> Figures {
        let (runs, phases) = self.counts.read();
        Figures {
            runs,
            phases,
            slots: self.settings.concurrency,
            slots_in_use: self.slots.taken(),
            draining: self.is_draining(),
            standby: self.executor.standby_figures(),
            sandbox: self.executor.sandbox().figures(),
        }
    }

    /// Waits until no run is live; false when the deadline came first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        self.slots.wait_idle(deadline)
    }

    /// Has `cancel` end the run in `slot` when all are to end.
    fn enlist(&self, slot: usize, cancel: &CancelToken) {
        let mut live = self.live();
        if live.ended {
            cancel.cancel();
        }
        live.tokens.insert(slot, cancel.clone());
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedCheck {
    /// Runs to the end on the calling thread. The slot is free again when this returns, unless
    /// the box is not dead by then, which keeps it.
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
        let job = Job { template: Some(&workspace), files: &files, spec, retained };
        runner.enlist(slot.index(), &watch.cancel);
        let report = runner.executor.run(job, watch, sink);
        // While the slot is still ours: the next run in it has a token of its own.
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
