//! A batch on disk.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use nix::sys::stat::{Mode, mkdirat};
use serde::{Deserialize, Serialize};

use crate::evaluation::request::{AgentLimitRule, EvaluatedWork, EvaluationRequest, TaskPlace};
use crate::evaluation::result::{EvaluationStatus, EvaluationStep};
use crate::evaluation::service::api::BatchRequest;
use crate::evaluation::service::record::{RecordFile, json_bytes, parsed, remove, remove_renamed};
use crate::store::{ReadFault, StoreDir, StoreError};
use cofferdam_core::job::Idempotency;

const BATCH: &str = "batch.json";
/// The largest `batch.json`, bytes.
const BATCH_BYTES_MAX: u64 = 256 << 20;
/// The largest work or environment of an agent, bytes.
const AGENT_BYTES_MAX: u64 = 1 << 30;

/// `batch.json`. The work of agents and their variables lie in files of their own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchFile {
    /// A UUID, version 4.
    pub batch_id: String,
    /// The name of its token.
    pub owner: String,
    /// Its age among batches.
    pub order: u64,
    /// RFC 3339.
    pub created_at: String,
    /// What was asked for, without the work of agents and without their variables.
    pub request: BatchRequest,
    /// Agents that have variables.
    pub secret_agents: Vec<usize>,
    /// Its evaluations.
    pub items: Vec<BatchItem>,
    /// Whether it was cancelled as a whole.
    pub is_cancelled: bool,
    /// The key of its request.
    pub idempotency: Option<Idempotency>,
}

/// An evaluation of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchItem {
    /// A UUID, version 4.
    pub eval_id: String,
    /// Its place in lists.
    pub order: u64,
    /// RFC 3339.
    pub created_at: String,
    /// Which task.
    pub task: usize,
    /// Which agent.
    pub agent: usize,
    /// The evaluation that it is the second run of.
    pub rerun_of: Option<String>,
    /// When it was cancelled before its start, RFC 3339.
    pub cancelled_at: Option<String>,
}

/// Where a task is, as lists show it.
pub fn place_text(task: &TaskPlace) -> String {
    match task {
        TaskPlace::Url { url, .. } => url.clone(),
        TaskPlace::Archive(path) | TaskPlace::Directory(path) => path.display().to_string(),
    }
}

impl BatchFile {
    /// The record of an item that waits.
    pub fn record(&self, item: &BatchItem) -> RecordFile {
        let task = self.request.tasks.get(item.task);
        RecordFile {
            eval_id: item.eval_id.clone(),
            owner: self.owner.clone(),
            order: item.order,
            created_at: item.created_at.clone(),
            started_at: None,
            finished_at: None,
            status: EvaluationStatus::Pending,
            step: EvaluationStep::Queued,
            verdict: None,
            passed: None,
            labels: self.request.labels.clone(),
            task_url: task.map(|task| place_text(&task.task)).unwrap_or_default(),
            language: None,
            batch_id: Some(self.batch_id.clone()),
            idempotency: None,
        }
    }

    /// The name of an item's agent.
    pub fn agent_name(&self, item: &BatchItem) -> String {
        self.request.agents.get(item.agent).map(|agent| agent.name.clone()).unwrap_or_default()
    }

    fn without_contents(&self) -> Self {
        let mut file = self.clone();
        for agent in &mut file.request.agents {
            agent.agent_env.clear();
            if let Some(bytes) = contents(&mut agent.work) {
                bytes.clear();
            }
        }
        file
    }
}

fn contents(work: &mut EvaluatedWork) -> Option<&mut Vec<u8>> {
    match work {
        EvaluatedWork::Agent { code: bytes, .. }
        | EvaluatedWork::Patch(bytes)
        | EvaluatedWork::Oracle(bytes)
        | EvaluatedWork::OracleScript(bytes) => Some(bytes),
        EvaluatedWork::Nothing => None,
    }
}

/// The files of batches.
#[derive(Debug, Clone, Copy)]
pub struct BatchFiles<'a>(pub &'a StoreDir);

impl BatchFiles<'_> {
    /// Writes a new batch, whose request has everything; returns what is kept in memory of it. On return it
    /// is on the disk.
    ///
    /// # Errors
    /// The disk failed; nothing is left behind.
    pub fn create(self, mut batch: BatchFile) -> Result<BatchFile, StoreError> {
        let new_name = format!(".new-{}", batch.batch_id);
        let made = self.fill(&new_name, &mut batch).and_then(|kept| {
            let moved = self.0.move_to(&new_name, self.0, &batch.batch_id);
            moved.map_err(|errno| self.0.error("rename", &batch.batch_id, errno))?;
            Ok(kept)
        });
        if made.is_err() {
            remove(self.0, OsStr::new(&new_name));
        }
        let kept = made?;
        self.0.sync().inspect_err(|_| remove_renamed(self.0, &kept.batch_id))?;
        Ok(kept)
    }

    fn fill(self, name: &str, batch: &mut BatchFile) -> Result<BatchFile, StoreError> {
        let failed = |operation, errno| self.0.error(operation, name, errno);
        mkdirat(self.0.fd(), name, Mode::S_IRWXU).map_err(|errno| failed("mkdir", errno))?;
        let directory = self.0.child(name).map_err(|errno| failed("open", errno))?;
        for (index, agent) in batch.request.agents.iter_mut().enumerate() {
            if let Some(bytes) = contents(&mut agent.work) {
                directory.write_new(&format!("agent-{index}"), bytes)?;
            }
            if !agent.agent_env.is_empty() {
                let name = env_name(index);
                directory.write_new(&name, &json_bytes(&directory, &name, &agent.agent_env)?)?;
            }
        }
        let kept = batch.without_contents();
        directory.write_new(BATCH, &json_bytes(&directory, BATCH, &kept)?)?;
        directory.sync()?;
        Ok(kept)
    }

    /// Replaces `batch.json`.
    ///
    /// # Errors
    /// The disk failed.
    pub fn update(self, batch: &BatchFile) -> Result<(), StoreError> {
        let directory = self.directory(&batch.batch_id)?;
        directory.replace(BATCH, &json_bytes(&directory, BATCH, batch)?)?;
        directory.sync()
    }

    /// Reads a batch.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    pub fn read(self, id: &str) -> Result<BatchFile, ReadFault> {
        let fault = |errno| ReadFault::of("open", self.0.path_of(id), errno);
        let directory = self.0.child(id).map_err(fault)?;
        let batch: BatchFile = parsed(&directory.read(BATCH, BATCH_BYTES_MAX)?)?;
        let (tasks, agents) = (batch.request.tasks.len(), batch.request.agents.len());
        if batch.batch_id != id {
            return Err(ReadFault::Corrupt("of another batch".to_owned()));
        }
        if batch.items.iter().any(|item| item.task >= tasks || item.agent >= agents) {
            return Err(ReadFault::Corrupt("an item without task or agent".to_owned()));
        }
        Ok(batch)
    }

    /// Whether the variables of an agent are still there, or it has none.
    pub fn has_env(self, batch: &BatchFile, agent: usize) -> bool {
        let is_there = || {
            let directory = self.0.child(&batch.batch_id).ok()?;
            directory.entry(env_name(agent)).ok().flatten()
        };
        !batch.secret_agents.contains(&agent) || is_there().is_some()
    }

    /// Removes the variables of an agent of whom no item waits.
    pub fn remove_env(self, id: &str, agent: usize) {
        let removed = self.directory(id).and_then(|directory| {
            directory.unlink(&env_name(agent))?;
            directory.sync()
        });
        if let Err(error) = removed {
            log::error!(batch = id, reason = error.to_string(); "variables of an agent not removed");
        }
    }

    /// What an item asks for.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn request(
        self,
        batch: &BatchFile,
        item: &BatchItem,
    ) -> Result<EvaluationRequest, StoreError> {
        let directory = self.directory(&batch.batch_id)?;
        let missing = |what| StoreError::Corrupt {
            path: directory.path_of(BATCH),
            reason: format!("no such {what}"),
        };
        let task = batch.request.tasks.get(item.task).ok_or_else(|| missing("task"))?;
        let agent = batch.request.agents.get(item.agent).ok_or_else(|| missing("agent"))?;
        let read = |name: &str| {
            let read = directory.read(name, AGENT_BYTES_MAX);
            read.map_err(|fault| fault.at(directory.path_of(name)))
        };
        let mut work = agent.work.clone();
        if let Some(bytes) = contents(&mut work) {
            *bytes = read(&format!("agent-{}", item.agent))?;
        }
        let mut agent_env = BTreeMap::new();
        if batch.secret_agents.contains(&item.agent) {
            let name = env_name(item.agent);
            let env = parsed(&read(&name)?);
            agent_env = env.map_err(|fault| fault.at(directory.path_of(&name)))?;
        }
        Ok(EvaluationRequest {
            task: task.task.clone(),
            work,
            timeout: None,
            agent_env,
            agent_network: agent.agent_network.clone(),
            agent_install: agent.agent_install.clone(),
            rootfs: None,
            on_agent_limit: AgentLimitRule::default(),
            fresh: false,
            labels: batch.request.labels.clone(),
        })
    }

    /// Removes a batch.
    pub fn remove(self, id: &str) {
        remove_renamed(self.0, id);
    }

    fn directory(self, id: &str) -> Result<StoreDir, StoreError> {
        self.0.child(id).map_err(|errno| self.0.error("open", id, errno))
    }
}

fn env_name(agent: usize) -> String {
    format!("env-{agent}")
}
