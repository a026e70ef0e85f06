//! One evaluation from its request to its result.

use std::thread;
use std::time::{Instant, SystemTime};

use serde_json::json;

use super::call::EvaluationCall;
use super::ending::EarlyEnd;
use super::output::{ObserverQueue, OutputRules, SecretValues};
use super::progress::EvaluationObserver;
use super::settings::{PipelineParts, PipelineSettings};
use super::steps::Evaluating;
use crate::egress::rules::{NetworkDenial, WithheldValues};
use crate::egress::secret::Placeholders;
use crate::egress::{AllowList, EgressEntryError};
use crate::evaluation::cache::CacheSpace;
use crate::evaluation::request::{EvaluationRequest, TaskPlace};
use crate::evaluation::result::{EvaluationResult, EvaluationStatus, EvaluationStep};
use crate::evaluation::service::error::EvaluationsError;
use crate::evaluation::trees::RootError;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{NetworkObject, SetupFailure, Watch};

/// Runs evaluations.
#[derive(Debug)]
pub struct Pipeline {
    settings: PipelineSettings,
    parts: PipelineParts,
}

impl Pipeline {
    /// A pipeline that works with `parts`.
    pub fn new(settings: PipelineSettings, parts: PipelineParts) -> Self {
        Self { settings, parts }
    }

    /// Its caches.
    pub fn caches(&self) -> &CacheSpace {
        self.parts.repositories.cache()
    }

    /// Whether this host can serve the request: its root file system, language, and hosts.
    ///
    /// # Errors
    /// The first field that it cannot serve.
    pub fn check(&self, owner: &str, request: &EvaluationRequest) -> Result<(), EvaluationsError> {
        let root = self.parts.roots.find(request.rootfs.as_deref()).map_err(wrong_root)?;
        if request.timeout.is_some_and(|timeout| timeout > self.settings.agent_timeout) {
            let words = format!("at most {} s", self.settings.agent_timeout.as_secs());
            return Err(EvaluationsError::invalid("timeout_secs", words));
        }
        if let Some(network) = &request.agent_network {
            self.check_network(owner, network)?;
            if let Some(name) =
                network.secret_env.keys().find(|name| request.agent_env.contains_key(*name))
            {
                let field = format!("agent_network.secret_env.{name}");
                return Err(EvaluationsError::invalid(field, "is in agent_env too"));
            }
        }
        let Some(language) = request.work.language() else { return Ok(()) };
        let found = self.parts.programs.command(language, &root, request);
        match found.map_err(|error| EvaluationsError::Store(error.to_string()))? {
            Some(_) => Ok(()),
            None => Err(EvaluationsError::LanguageUnavailable(language.name().to_owned())),
        }
    }

    fn check_network(&self, owner: &str, network: &NetworkObject) -> Result<(), EvaluationsError> {
        let wrong = |EgressEntryError { index, entry, why }| {
            let field = format!("agent_network.allow[{index}]");
            EvaluationsError::invalid(field, format!("{entry:?} {why}"))
        };
        let read = self.settings.egress.network(
            network,
            owner,
            &Placeholders::default(),
            WithheldValues::Refused,
        );
        read.map_err(|denial| match denial {
            NetworkDenial::Invalid(fault) => {
                EvaluationsError::invalid(format!("agent_network.{}", fault.path), fault.words)
            }
            NetworkDenial::SecretDenied { name } => {
                EvaluationsError::SecretDenied { field: "agent_network.secrets".to_owned(), name }
            }
        })?;
        let asked = AllowList::parse(&network.hosts()).map_err(wrong)?;
        let maximum = AllowList::parse(&self.settings.agent_hosts).map_err(wrong)?;
        asked.is_within(&maximum).map_err(|outside| EvaluationsError::NetworkDenied {
            field: "agent_network.allow".to_owned(),
            message: format!("{outside:?} is not within EVAL_AGENT_HOSTS"),
        })
    }

    /// Runs an evaluation to its end on this thread. When it returns, `observer` has been told everything.
    pub fn evaluate(
        &self,
        call: &EvaluationCall<'_>,
        watch: &Watch,
        observer: &dyn EvaluationObserver,
    ) -> EvaluationResult {
        let began = Instant::now();
        let deadline = Deadline::after(self.settings.session_timeout);
        let result = begun(call);
        let mut result = thread::scope(|scope| match ObserverQueue::start(scope, observer) {
            Ok(queue) => self.run(call, (watch, deadline), &queue, result),
            Err(error) => {
                let failure = SetupFailure::from_io("start thread", &error);
                let mut result = result;
                let early = EarlyEnd::of_sandbox(EvaluationStep::DownloadingTask, &failure);
                early.apply_to(&mut result);
                result
            }
        });
        result.finished_at = Some(rfc3339(SystemTime::now()));
        result.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        result
    }

    fn run(
        &self,
        call: &EvaluationCall<'_>,
        (watch, deadline): (&Watch, Deadline),
        queue: &ObserverQueue<'_>,
        result: EvaluationResult,
    ) -> EvaluationResult {
        let secrets = match weakened::lacks(Wall::Redacted) {
            true => SecretValues::default(),
            false => SecretValues::new(call.request.agent_env.values()),
        };
        let mut evaluating = Evaluating {
            settings: &self.settings,
            parts: &self.parts,
            call: *call,
            watch,
            deadline,
            queue,
            outputs: OutputRules::new(self.settings.output_bytes_max, secrets, queue),
            egress: self.settings.egress.log(),
            egress_told: 0,
            result,
        };
        if let Err(early) = run_steps(&mut evaluating) {
            early.apply_to(&mut evaluating.result);
        }
        evaluating.result
    }
}

fn run_steps(evaluating: &mut Evaluating<'_>) -> Result<(), EarlyEnd> {
    let open = evaluating.open_task()?;
    let root = evaluating.parts.roots.find(evaluating.call.request.rootfs.as_deref());
    let root = root.map_err(|error| {
        let failure = SetupFailure::from_words("root file system", error.to_string());
        EarlyEnd::of_sandbox(EvaluationStep::CloningRepo, &failure)
    })?;
    let installed = evaluating.install(&open, &root)?;
    let left = evaluating.work(&open, &root, &installed)?;
    evaluating.verify(&open, &installed.base.files, left.as_ref())
}

fn begun(call: &EvaluationCall<'_>) -> EvaluationResult {
    let mut result = EvaluationResult::pending(call.id.to_owned(), call.created_at.to_owned());
    result.status = EvaluationStatus::Running;
    result.started_at = Some(rfc3339(SystemTime::now()));
    result.labels.clone_from(&call.request.labels);
    result.task.url = Some(match &call.request.task {
        TaskPlace::Url { url, .. } => url.clone(),
        TaskPlace::Archive(path) | TaskPlace::Directory(path) => path.display().to_string(),
    });
    result
}

fn wrong_root(error: RootError) -> EvaluationsError {
    let message = error.to_string();
    let details = match error {
        RootError::Unknown { known } => json!({ "known": known }),
        RootError::Unusable(_) => json!({}),
    };
    EvaluationsError::Invalid { field: "rootfs".to_owned(), message, details }
}
