//! `GET /health`, `GET /status` and `POST /shutdown`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use super::request::accepts;
use super::request::access::PublicView;
use super::response;
use super::server::app_state::AppState;
use crate::case::service::CaseRunCounts;
use crate::check::status::ServiceStatus;
use crate::evaluation::service::EvaluationCounts;
use crate::job::JobsStatus;

pub async fn health(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    let (status, word, line) = if state.checks.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining", "draining\n")
    } else {
        (StatusCode::OK, "ok", "ok\n")
    };
    if accepts(&headers, "application/json") {
        response::json(status, &json!({ "status": word }))
    } else {
        response::text(status, line)
    }
}

/// The evaluations, as the seed has them.
#[derive(Serialize)]
struct EvaluationsStatus {
    uptime_secs: u64,
    active_evals: u64,
    total_evals: u64,
    passed: u64,
    failed: u64,
    cancelled: u64,
    capacity: u64,
    available_slots: u64,
}

impl EvaluationsStatus {
    fn of(counts: EvaluationCounts, uptime_secs: u64) -> Self {
        let EvaluationCounts { active, passed, failed, cancelled, capacity, .. } = counts;
        Self {
            uptime_secs,
            active_evals: active,
            total_evals: passed.saturating_add(failed).saturating_add(cancelled),
            passed,
            failed,
            cancelled,
            capacity,
            available_slots: capacity.saturating_sub(active),
        }
    }
}

/// The runs of Cases.
#[derive(Serialize)]
struct CasesStatus {
    queued: u64,
    running: u64,
    cells_running: u64,
    workers: u64,
}

impl CasesStatus {
    fn of(counts: CaseRunCounts) -> Self {
        Self {
            queued: counts.runs_queued,
            running: counts.runs_running,
            cells_running: counts.cells_running,
            workers: counts.cells_capacity,
        }
    }
}

pub async fn status(
    State(state): State<Arc<AppState>>,
    public: Option<Extension<PublicView>>,
) -> Response {
    /// What everybody may see.
    #[derive(Serialize)]
    struct PublicBody {
        version: &'static str,
        #[serde(flatten)]
        evaluations: Option<EvaluationsStatus>,
    }
    /// The status as one object, with jobs and Cases last.
    #[derive(Serialize)]
    struct StatusBody<'a> {
        #[serde(flatten)]
        service: ServiceStatus<'a>,
        #[serde(flatten)]
        evaluations: Option<EvaluationsStatus>,
        #[serde(skip_serializing_if = "Option::is_none")]
        jobs: Option<JobsStatus>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cases: Option<CasesStatus>,
    }
    let service = state.checks.status();
    let counts = state.metrics.evaluations();
    let evaluations = counts.map(|counts| EvaluationsStatus::of(counts, service.uptime_seconds));
    if public.is_some() {
        return response::json(
            StatusCode::OK,
            &PublicBody { version: service.version, evaluations },
        );
    }
    let jobs = state.metrics.jobs().as_ref().map(JobsStatus::from);
    let cases = state.metrics.cases().map(CasesStatus::of);
    response::json(StatusCode::OK, &StatusBody { service, evaluations, jobs, cases })
}

pub async fn shutdown(State(state): State<Arc<AppState>>) -> Response {
    state.shutdown.drain();
    response::text(StatusCode::OK, "shutdown\n")
}
