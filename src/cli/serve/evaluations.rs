//! The evaluations of a service, according to its configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::store_path::absolute;
use crate::cli::evaluate::service::EvaluationHost;
use crate::cli::failure::{Failure, error_words};
use crate::config::Config;
use crate::egress::ServiceEgress;
use crate::evaluation::cache::CacheKind;
use crate::evaluation::pipeline::{EvaluationCall, EvaluationObserver};
use crate::evaluation::request::EvaluationRequest;
use crate::evaluation::result::EvaluationResult;
use crate::evaluation::service::{
    EvaluationServiceSettings, Evaluations, EvaluationsError, Evaluator, LazyEvaluations,
};
use cofferdam_core::Watch;

/// The store of a service's evaluations, if they are enabled.
#[derive(Debug)]
pub struct ServedEvaluations {
    store_dir: Option<PathBuf>,
    /// Whether an option or variable names the store.
    is_asked_for: bool,
}

/// The host, kept as long as its pipeline runs.
struct HostedEvaluator(EvaluationHost);

impl Evaluator for HostedEvaluator {
    fn check(&self, owner: &str, request: &EvaluationRequest) -> Result<(), EvaluationsError> {
        self.0.pipeline().check(owner, request)
    }

    fn cache_bytes(&self) -> Vec<(CacheKind, u64)> {
        self.0.pipeline().caches().bytes()
    }

    fn evaluate(
        &self,
        call: &EvaluationCall<'_>,
        watch: &Watch,
        observer: &dyn EvaluationObserver,
    ) -> EvaluationResult {
        self.0.pipeline().evaluate(call, watch, observer)
    }
}

impl ServedEvaluations {
    /// The evaluations of `config`, with the store of jobs. `workspaces` is copied for every run, so it must
    /// not contain records.
    pub fn new(
        config: &Config,
        store_dir: Option<PathBuf>,
        workspaces: &Path,
    ) -> Result<Self, Failure> {
        let none = Self { store_dir: None, is_asked_for: false };
        if !config.evaluations.enabled {
            return Ok(none);
        }
        let is_asked_for = store_dir.is_some() || config.jobs.store_is_asked_for();
        let store_dir = store_dir.unwrap_or_else(|| config.jobs.store_dir.clone());
        let place = absolute(&store_dir).map_err(|error| {
            let words = error_words(&error);
            let words = format!("{}: {words}; want a directory for records", store_dir.display());
            Failure::option("--store-dir", words)
        })?;
        if !place.starts_with(workspaces) {
            return Ok(Self { store_dir: Some(place), is_asked_for });
        }
        if is_asked_for {
            let words =
                format!("{}: in a workspace, which is copied for every run", place.display());
            return Err(Failure::option("--store-dir", words));
        }
        log::warn!(
            "evaluations are disabled: their records would be in the workspace; \
             set JOBS_STORE_DIR, or EVAL=off"
        );
        Ok(none)
    }

    /// Starts the evaluations. What they reach is part of `egress`; no sandbox shows any of `private`.
    pub fn start(
        self,
        config: &Config,
        egress: &ServiceEgress,
        private: &[PathBuf],
    ) -> Result<Option<Arc<dyn Evaluations>>, Failure> {
        let Some(store_dir) = self.store_dir else { return Ok(None) };
        let private = [private, std::slice::from_ref(&store_dir)].concat();
        let host = EvaluationHost::open(config, Some(&store_dir), egress, &private);
        match host.and_then(|host| open(config, &store_dir, host)) {
            Ok(service) => Ok(Some(Arc::new(service))),
            // What the configuration names is never left out.
            Err(failure) if !self.is_asked_for && !matches!(failure, Failure::Usage(_)) => {
                log::warn!(
                    "evaluations are disabled: {failure}; \
                     set JOBS_STORE_DIR and WORKSPACE_BASE, or EVAL=off"
                );
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

fn open(
    config: &Config,
    store_dir: &Path,
    host: EvaluationHost,
) -> Result<LazyEvaluations, Failure> {
    let evaluations = &config.evaluations;
    let settings = EvaluationServiceSettings {
        store_dir: store_dir.to_owned(),
        capacity: evaluations.capacity,
        batch_max: evaluations.batch_max as u64,
        session_timeout: evaluations.times.session,
        retention: evaluations.times.retention,
    };
    LazyEvaluations::new(settings, Arc::new(HostedEvaluator(host))).map_err(|error| {
        let words = format!("{}: {error}", store_dir.display());
        Failure::Serve(std::io::Error::other(words))
    })
}
