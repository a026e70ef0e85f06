//! Admits evaluations and batches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use uuid::Uuid;

use super::service_state::{RETRY_AFTER, ServiceFloor, now_ns, now_text, store_failed};
use crate::evaluation::request::{AgentLimitRule, EvaluationRequest};
use crate::evaluation::result::{EvaluationStatus, EvaluationStep};
use crate::evaluation::service::api::{BatchAgent, BatchRequest, SubmittedBatch};
use crate::evaluation::service::batch::{BatchFile, BatchItem, place_text};
use crate::evaluation::service::error::EvaluationsError;
use crate::evaluation::service::floor::OpenBatch;
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::{EventLog, RecordFile};
use cofferdam_core::job::Idempotency;
use cofferdam_core::sync::cancel::CancelToken;

/// How many items of all batches may wait.
const WAITING_ITEMS_MAX: u64 = 50_000;

impl ServiceFloor {
    /// Admits an evaluation, or repeats the answer to its key.
    pub fn admit(
        self: &Arc<Self>,
        owner: &str,
        request: EvaluationRequest,
        idempotency: Option<&Idempotency>,
    ) -> Result<String, EvaluationsError> {
        self.evaluator.check(owner, &request)?;
        let _admitting = idempotency.is_some().then(|| self.admitting());
        if let Some(id) = self.first_answer(owner, idempotency)? {
            return if self.floor().index.get(&id).is_some() {
                Ok(id)
            } else {
                Err(EvaluationsError::IdempotencyConflict)
            };
        }
        let order = self.reserve()?;
        let begun = self.begin_direct(owner, request, idempotency, order);
        if begun.is_err() {
            self.release(false);
        }
        begun
    }

    fn reserve(&self) -> Result<u64, EvaluationsError> {
        let mut floor = self.floor();
        if floor.is_draining {
            return Err(EvaluationsError::Draining { retry_after: RETRY_AFTER });
        }
        if !floor.slots.take_direct() {
            let capacity = floor.slots.capacity() as u64;
            return Err(EvaluationsError::AtCapacity { capacity, retry_after: RETRY_AFTER });
        }
        Ok(floor.index.next_order(now_ns()))
    }

    fn begin_direct(
        self: &Arc<Self>,
        owner: &str,
        request: EvaluationRequest,
        idempotency: Option<&Idempotency>,
        order: u64,
    ) -> Result<String, EvaluationsError> {
        let token = CancelToken::new().map_err(|error| {
            log::error!(reason = error.to_string(); "no descriptor for an evaluation");
            EvaluationsError::Store(format!("eventfd: {error}"))
        })?;
        let (eval_id, created_at) = (Uuid::new_v4().to_string(), now_text());
        let record = RecordFile {
            eval_id: eval_id.clone(),
            owner: owner.to_owned(),
            order,
            created_at,
            started_at: None,
            finished_at: None,
            status: EvaluationStatus::Pending,
            step: EvaluationStep::Queued,
            verdict: None,
            passed: None,
            labels: request.labels.clone(),
            task_url: place_text(&request.task),
            language: None,
            batch_id: None,
            idempotency: idempotency.cloned(),
        };
        self.records.create(&record).map_err(|error| store_failed(&error))?;
        let live = Arc::new(LiveEvaluation::new(record.clone(), EventLog::new(&eval_id)));
        live.begin(token);
        {
            let mut floor = self.floor();
            floor.index.put(record);
            floor.live.insert(eval_id.clone(), Arc::clone(&live));
            floor.use_key(owner, idempotency, &eval_id, SystemTime::now());
            // The drain may have come meanwhile, with its cancellation.
            if floor.cancels_new {
                live.cancel();
            }
        }
        let spawned = self.spawn_run(&live, request);
        if let Err(error) = spawned {
            let mut floor = self.floor();
            floor.live.remove(&eval_id);
            floor.index.remove(&eval_id);
            drop(floor);
            self.records.remove(&eval_id);
            return Err(EvaluationsError::Store(format!("thread: {error}")));
        }
        Ok(eval_id)
    }

    /// The id of the first answer to a key.
    fn first_answer(
        &self,
        owner: &str,
        asked: Option<&Idempotency>,
    ) -> Result<Option<String>, EvaluationsError> {
        let Some(Idempotency { key, body }) = asked else { return Ok(None) };
        let floor = self.floor();
        let Some(used) = floor.key(owner, key) else { return Ok(None) };
        let is_kept = floor.index.get(&used.id).is_some() || floor.batches.contains_key(&used.id);
        match is_kept {
            true if used.body == *body => Ok(Some(used.id.clone())),
            true => Err(EvaluationsError::IdempotencyConflict),
            false => Ok(None),
        }
    }

    /// Admits a batch, or repeats the answer to its key.
    pub fn admit_batch(
        &self,
        owner: &str,
        request: BatchRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedBatch, EvaluationsError> {
        check_batch(&request, self.settings.batch_max)?;
        self.check_agents(owner, &request)?;
        let _admitting = self.admitting();
        if let Some(id) = self.first_answer(owner, idempotency.as_ref())? {
            let floor = self.floor();
            let batch = floor.batches.get(&id).ok_or(EvaluationsError::IdempotencyConflict)?;
            return Ok(submitted(&batch.file));
        }
        self.check_room(&request)?;
        let file = self.new_batch(owner, request, idempotency);
        let file = self.batch_files().create(file).map_err(|error| store_failed(&error))?;
        let answer = submitted(&file);
        let mut floor = self.floor();
        for item in &file.items {
            floor.index.put(file.record(item));
        }
        let key = file.idempotency.clone();
        floor.use_key(owner, key.as_ref(), &file.batch_id, SystemTime::now());
        let waiting = (0..file.items.len()).collect();
        floor.batches.insert(file.batch_id.clone(), OpenBatch { file, waiting });
        drop(floor);
        self.changed.notify_all();
        Ok(answer)
    }

    fn check_room(&self, request: &BatchRequest) -> Result<(), EvaluationsError> {
        let floor = self.floor();
        let retry_after = RETRY_AFTER;
        if floor.is_draining {
            return Err(EvaluationsError::Draining { retry_after });
        }
        let waiting: usize = floor.batches.values().map(|batch| batch.waiting.len()).sum();
        let asked = count_of(request);
        if asked.saturating_add(waiting as u64) > WAITING_ITEMS_MAX {
            return Err(EvaluationsError::AtCapacity { capacity: WAITING_ITEMS_MAX, retry_after });
        }
        Ok(())
    }

    fn check_agents(&self, owner: &str, request: &BatchRequest) -> Result<(), EvaluationsError> {
        let Some(task) = request.tasks.first() else { return Ok(()) };
        for (index, agent) in request.agents.iter().enumerate() {
            let request = EvaluationRequest {
                task: task.task.clone(),
                work: agent.work.clone(),
                timeout: None,
                agent_env: agent.agent_env.clone(),
                agent_network: agent.agent_network.clone(),
                agent_install: agent.agent_install.clone(),
                rootfs: None,
                on_agent_limit: AgentLimitRule::default(),
                fresh: false,
                labels: request.labels.clone(),
            };
            let place = |field: String| format!("agents[{index}].{field}");
            self.evaluator.check(owner, &request).map_err(|error| match error {
                EvaluationsError::Invalid { field, message, details } => {
                    EvaluationsError::Invalid { field: place(field), message, details }
                }
                EvaluationsError::NetworkDenied { field, message } => {
                    EvaluationsError::NetworkDenied { field: place(field), message }
                }
                EvaluationsError::SecretDenied { field, name } => {
                    EvaluationsError::SecretDenied { field: place(field), name }
                }
                error => error,
            })?;
        }
        Ok(())
    }

    fn new_batch(
        &self,
        owner: &str,
        request: BatchRequest,
        idempotency: Option<Idempotency>,
    ) -> BatchFile {
        let created_at = now_text();
        let secret =
            |(index, agent): (usize, &BatchAgent)| (!agent.agent_env.is_empty()).then_some(index);
        let secret_agents = request.agents.iter().enumerate().filter_map(secret).collect();
        let mut items = Vec::new();
        let mut floor = self.floor();
        let order = floor.index.next_order(now_ns());
        // All agents get their first run before any gets its second.
        for _ in 0..request.repeat {
            for task in 0..request.tasks.len() {
                for agent in 0..request.agents.len() {
                    items.push(BatchItem {
                        eval_id: Uuid::new_v4().to_string(),
                        order: floor.index.next_order(0),
                        created_at: created_at.clone(),
                        task,
                        agent,
                        rerun_of: None,
                        cancelled_at: None,
                    });
                }
            }
        }
        BatchFile {
            batch_id: Uuid::new_v4().to_string(),
            owner: owner.to_owned(),
            order,
            created_at,
            request,
            secret_agents,
            items,
            is_cancelled: false,
            idempotency,
        }
    }
}

fn submitted(batch: &BatchFile) -> SubmittedBatch {
    let eval_ids = batch.items.iter().filter(|item| item.rerun_of.is_none());
    let eval_ids = eval_ids.map(|item| item.eval_id.clone()).collect();
    SubmittedBatch { batch_id: batch.batch_id.clone(), eval_ids }
}

fn count_of(request: &BatchRequest) -> u64 {
    let (tasks, agents) = (request.tasks.len() as u64, request.agents.len() as u64);
    tasks.saturating_mul(agents).saturating_mul(request.repeat)
}

/// Whether a batch is one (pure).
pub(super) fn check_batch(request: &BatchRequest, items_max: u64) -> Result<(), EvaluationsError> {
    let BatchRequest { tasks, agents, repeat, .. } = request;
    for (field, is_empty) in
        [("tasks", tasks.is_empty()), ("agents", agents.is_empty()), ("repeat", *repeat == 0)]
    {
        if is_empty {
            return Err(EvaluationsError::invalid(field, "at least one is required"));
        }
    }
    let count = count_of(request);
    if count > items_max {
        let message = format!("{count} evaluations; at most {items_max} are allowed");
        let details = json!({ "max": items_max, "evaluations": count });
        return Err(EvaluationsError::Invalid { field: "repeat".to_owned(), message, details });
    }
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (index, agent) in agents.iter().enumerate() {
        if !names.insert(&agent.name) {
            let message = format!("{:?} is the name of another agent too", agent.name);
            return Err(EvaluationsError::invalid(format!("agents[{index}].name"), message));
        }
    }
    for (index, task) in tasks.iter().enumerate() {
        if !places.insert(place_text(&task.task)) {
            let field = format!("tasks[{index}].task_url");
            return Err(EvaluationsError::invalid(field, "this task is there already"));
        }
    }
    Ok(())
}
