//! The evaluations of a service, according to its configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::store_path::ServedStore;
use crate::cli::evaluate::service::EvaluationHost;
use crate::cli::failure::Failure;
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
    store: Option<ServedStore>,
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
        if !config.evaluations.enabled {
            return Ok(Self { store: None });
        }
        let store = ServedStore::beside(config, store_dir, workspaces)?;
        if store.is_none() {
            log::warn!(
                "evaluations are disabled: their records would be in the workspace; \
                 set JOBS_STORE_DIR, or EVAL=off"
            );
        }
        Ok(Self { store })
    }

    /// Starts the evaluations. What they reach is part of `egress`; no sandbox shows any of `private`.
    pub fn start(
        self,
        config: &Config,
        egress: &ServiceEgress,
        private: &[PathBuf],
    ) -> Result<Option<Arc<dyn Evaluations>>, Failure> {
        let Some(ServedStore { directory: store_dir, is_asked_for }) = self.store else {
            return Ok(None);
        };
        let private = [private, std::slice::from_ref(&store_dir)].concat();
        let host = EvaluationHost::open(config, Some(&store_dir), egress, &private);
        match host.and_then(|host| open(config, &store_dir, host)) {
            Ok(service) => Ok(Some(Arc::new(service))),
            // What the configuration names is never left out.
            Err(failure) if !is_asked_for && !matches!(failure, Failure::Usage(_)) => {
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
