//! A service over an evaluator that does what the test says.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use tempfile::TempDir;

use crate::evaluation::pipeline::EvaluationObserver;
use crate::evaluation::request::AgentLanguage;
use crate::evaluation::request::{AgentLimitRule, EvaluatedWork, EvaluationRequest, TaskPlace};
use crate::evaluation::result::{
    EvaluationResult, EvaluationStatus, EvaluationStep, EvaluationVerdict, PatchFacts, TestResult,
};
use crate::evaluation::service::evaluator::{EvaluationCall, Evaluator};
use crate::evaluation::service::*;
use crate::evaluation::task::TestKind;
use cofferdam_core::Watch;
use cofferdam_core::values::deadline::Deadline;

/// The longest that a test waits for anything.
pub const WAIT: Duration = Duration::from_secs(30);

/// What an evaluation that has begun is told to do.
pub enum Order {
    End(EvaluationVerdict),
    Output(String),
    Panic,
}

/// An evaluation that has begun.
pub struct Begun {
    pub id: String,
    pub request: EvaluationRequest,
    pub orders: Sender<Order>,
}

impl Begun {
    pub fn end(&self, verdict: EvaluationVerdict) {
        self.orders.send(Order::End(verdict)).unwrap();
    }
}

pub struct ScriptedEvaluator {
    begun: Mutex<Sender<Begun>>,
    pub refusal: Mutex<Option<EvaluationsError>>,
}

impl Evaluator for ScriptedEvaluator {
    fn check(&self, _: &str, _: &EvaluationRequest) -> Result<(), EvaluationsError> {
        self.refusal.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn evaluate(
        &self,
        call: &EvaluationCall<'_>,
        watch: &Watch,
        observer: &dyn EvaluationObserver,
    ) -> EvaluationResult {
        let mut result = EvaluationResult::pending(call.id.to_owned(), call.created_at.to_owned());
        result.step = EvaluationStep::RunningAgent;
        result.task.language = Some("python".to_owned());
        observer.step(EvaluationStep::RunningAgent);
        observer.snapshot(&result);
        let (orders, given) = channel();
        let begun = Begun { id: call.id.to_owned(), request: call.request.clone(), orders };
        // The test may be over.
        let _ = self.begun.lock().unwrap().send(begun);
        loop {
            match next_order(&given, watch) {
                None => return ended(result, EvaluationVerdict::Cancelled),
                Some(Order::Panic) => panic!("as the test wants"),
                Some(Order::Output(text)) => {
                    observer.output(EvaluationStep::RunningAgent, None, &text);
                }
                Some(Order::End(verdict)) => {
                    let test = test_result();
                    observer.test(&test);
                    result.test_results.push(test);
                    return ended(result, verdict);
                }
            }
        }
    }
}

/// The next order; `None` once it is cancelled.
fn next_order(given: &Receiver<Order>, watch: &Watch) -> Option<Order> {
    loop {
        let mut fds = [PollFd::new(watch.cancel.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO).unwrap() > 0 {
            return None;
        }
        if let Ok(order) = given.recv_timeout(Duration::from_millis(2)) {
            return Some(order);
        }
    }
}

fn test_result() -> TestResult {
    TestResult {
        name: "fail_to_pass_1.sh".to_owned(),
        kind: TestKind::FailToPass,
        passed: true,
        exit_code: 0,
        signal: None,
        limit: None,
        output: "fine <&>".to_owned(),
        truncated: false,
        duration_ms: 9,
    }
}

fn ended(mut result: EvaluationResult, verdict: EvaluationVerdict) -> EvaluationResult {
    use EvaluationVerdict::*;
    result.verdict = Some(verdict);
    (result.status, result.passed) = match verdict {
        Resolved => (EvaluationStatus::Completed, Some(true)),
        Cancelled | TimedOut => (EvaluationStatus::Cancelled, None),
        InfraError | NoTests => (EvaluationStatus::Failed, None),
        Partial | Unresolved => (EvaluationStatus::Failed, Some(false)),
    };
    if result.passed.is_some() {
        result.step = EvaluationStep::Done;
        result.agent_patch = Some("diff --git".to_owned());
        result.patch = Some(PatchFacts {
            bytes: 10,
            sha256: String::new(),
            files: 1,
            encoding: "utf-8",
            withheld: vec![],
            omitted: vec![],
        });
    }
    result.duration_ms = 7;
    result
}

/// A service in a directory of its own.
pub struct Scene {
    pub service: Option<EvaluationService>,
    pub evaluator: Arc<ScriptedEvaluator>,
    pub begun: Receiver<Begun>,
    pub place: TempDir,
    pub settings: EvaluationServiceSettings,
}

impl Scene {
    pub fn new(capacity: usize) -> Self {
        Self::over(tempfile::tempdir().unwrap(), capacity)
    }

    pub fn over(place: TempDir, capacity: usize) -> Self {
        let settings = EvaluationServiceSettings {
            store_dir: place.path().join("store"),
            capacity,
            batch_max: 20,
            session_timeout: Duration::from_secs(60),
            retention: Duration::from_secs(3600),
        };
        let (sender, begun) = channel();
        let (begun_by, refusal) = (Mutex::new(sender), Mutex::default());
        let evaluator = Arc::new(ScriptedEvaluator { begun: begun_by, refusal });
        let service = EvaluationService::open(settings.clone(), evaluator.clone()).unwrap();
        Self { service: Some(service), evaluator, begun, place, settings }
    }

    pub fn service(&self) -> &EvaluationService {
        self.service.as_ref().unwrap()
    }

    pub fn begun(&self) -> Begun {
        self.begun.recv_timeout(WAIT).expect("an evaluation begins")
    }

    /// A service over a copy of the store as it is now: what a kill would leave.
    pub fn after_kill(&self, capacity: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        copy(&self.settings.store_dir, &place.path().join("store"));
        Self::over(place, capacity)
    }

    pub fn idle(&self) {
        assert!(self.service().wait_idle(Deadline::after(WAIT)), "the service gets idle");
    }

    pub fn view(&self, id: &str) -> Value {
        serde_json::from_str(&self.service().view("o", id).unwrap()).unwrap()
    }

    pub fn batch(&self, id: &str) -> Value {
        serde_json::from_str(&self.service().batch("o", id).unwrap()).unwrap()
    }

    pub fn record(&self, id: &str) -> std::path::PathBuf {
        self.settings.store_dir.join("evaluations").join(id)
    }

    /// Whether any file of the store has that text.
    pub fn holds(&self, text: &str) -> bool {
        holds(&self.settings.store_dir, text.as_bytes())
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn holds(directory: &Path, text: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, text);
        }
        fs::read(path).unwrap().windows(text.len()).any(|part| part == text)
    })
}

/// The lines of the events so far.
pub fn lines(events: &mut EvaluationEvents) -> Vec<Value> {
    let mut text = String::new();
    events.file.read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn request() -> EvaluationRequest {
    EvaluationRequest {
        task: TaskPlace::Url { url: "https://h/t.tar".to_owned(), sha256: None },
        work: EvaluatedWork::Agent { code: b"print()".to_vec(), language: AgentLanguage::Python },
        timeout: None,
        agent_env: BTreeMap::new(),
        agent_network: None,
        agent_install: vec![],
        rootfs: None,
        on_agent_limit: AgentLimitRule::Stop,
        fresh: false,
        labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
    }
}

/// A batch of so many tasks with these agents.
pub fn batch(tasks: usize, agents: &[&str], repeat: u64) -> BatchRequest {
    let task = |index| BatchTask {
        task: TaskPlace::Url { url: format!("https://h/{index}"), sha256: None },
    };
    let agent = |name: &&str| BatchAgent {
        name: (*name).to_owned(),
        work: request().work,
        agent_env: BTreeMap::new(),
        agent_network: None,
        agent_install: vec![],
    };
    BatchRequest {
        tasks: (0..tasks).map(task).collect(),
        agents: agents.iter().map(agent).collect(),
        repeat,
        labels: BTreeMap::new(),
    }
}
