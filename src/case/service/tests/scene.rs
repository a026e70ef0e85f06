//! A service in a temporary directory, whose Cells wait until they are let go.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::case::harness::CaseDenial;
use crate::case::run::{CellEnd, CellFilesDir, CellRunner, CellStatus, PlannedCell};
use crate::case::service::{
    CaseInput, CaseRunDocument, CaseRunRequest, CaseRunStatus, CaseRunView, CaseRunners, CaseRuns,
    CaseRunsError, CaseService, CaseServiceSettings, RunnerRequest,
};
use crate::egress::{AllowList, EgressTerms};
use crate::evaluation::cache::is_raised;
use crate::policy::WorkspaceRoots;
use cofferdam_core::sync::cancel::CancelToken;

/// Long enough for two busy cores.
const WITHIN: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(5);

/// What the Cells of all services of a test share.
#[derive(Debug, Default)]
pub struct Script {
    state: Mutex<ScriptState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ScriptState {
    /// The tokens and Cells that have begun, in their order.
    begun: Vec<(String, String)>,
    running: usize,
    /// Cells that may end; all if `None`.
    tickets: Option<usize>,
    /// Cells of one token that may end.
    tickets_of: BTreeMap<String, usize>,
    /// What `source_digest` says.
    digest: String,
    panics: bool,
}

impl ScriptState {
    fn may_end(&self, owner: &str) -> bool {
        self.tickets != Some(0) || self.tickets_of.get(owner).is_some_and(|count| *count > 0)
    }

    fn use_ticket(&mut self, owner: &str) {
        match self.tickets_of.get_mut(owner).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => self.tickets = self.tickets.map(|tickets| tickets - 1),
        }
    }
}

impl Script {
    /// Cells wait for tickets.
    pub fn hold(&self) {
        self.state.lock().unwrap().tickets = Some(0);
    }

    /// Lets so many Cells end.
    pub fn release(&self, count: usize) {
        *self.state.lock().unwrap().tickets.as_mut().unwrap() += count;
        self.changed.notify_all();
    }

    /// Lets a Cell of `owner` end.
    pub fn release_of(&self, owner: &str) {
        *self.state.lock().unwrap().tickets_of.entry(owner.to_owned()).or_default() += 1;
        self.changed.notify_all();
    }

    /// Lets all Cells end.
    pub fn release_all(&self) {
        self.state.lock().unwrap().tickets = None;
        self.changed.notify_all();
    }

    pub fn set_digest(&self, digest: &str) {
        self.state.lock().unwrap().digest = digest.to_owned();
    }

    pub fn let_panic(&self) {
        self.state.lock().unwrap().panics = true;
    }

    pub fn begun(&self) -> Vec<(String, String)> {
        self.state.lock().unwrap().begun.clone()
    }

    pub fn running(&self) -> usize {
        self.state.lock().unwrap().running
    }

    /// Waits until so many Cells have begun.
    pub fn wait_begun(&self, count: usize) {
        wait_for(|| self.begun().len() >= count);
    }

    fn run(&self, owner: &str, cell: &PlannedCell, stop: &CancelToken) -> CellEnd {
        let mut state = self.state.lock().unwrap();
        state.begun.push((owner.to_owned(), cell.id.clone()));
        state.running += 1;
        while !state.may_end(owner) && !is_raised(stop) {
            state = self.changed.wait_timeout(state, TICK).unwrap().0;
        }
        state.running -= 1;
        if is_raised(stop) {
            return CellEnd::of(CellStatus::Pending);
        }
        state.use_ticket(owner);
        let passed = Some(cell.harness != "nop");
        CellEnd {
            overall_score: Some(1.0),
            overall_passed: passed,
            ..CellEnd::of(CellStatus::Done)
        }
    }
}

/// Runs Cells by the script.
struct ScriptedRunner {
    script: Arc<Script>,
    owner: String,
}

impl CellRunner for ScriptedRunner {
    fn run_cell(&self, cell: &PlannedCell, _: &CellFilesDir, stop: &CancelToken) -> CellEnd {
        self.script.run(&self.owner, cell, stop)
    }
}

struct ScriptedRunners(Arc<Script>);

impl CaseRunners for ScriptedRunners {
    fn denials(&self, _: &RunnerRequest<'_>) -> Vec<CaseDenial> {
        Vec::new()
    }

    fn source_digest(&self, _: &RunnerRequest<'_>, _: &CancelToken) -> Result<String, String> {
        let state = self.0.state.lock().unwrap();
        let (panics, digest) = (state.panics, state.digest.clone());
        drop(state);
        assert!(!panics, "the script panics");
        Ok(digest)
    }

    fn cell_runner(&self, request: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, String> {
        let (script, owner) = (Arc::clone(&self.0), request.owner.to_owned());
        Ok(Box::new(ScriptedRunner { script, owner }))
    }
}

/// A directory with Cases and a store.
pub struct Scene {
    place: TempDir,
    pub script: Arc<Script>,
}

pub fn scene() -> Scene {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("cases")).unwrap();
    let scene = Scene { place, script: Arc::default() };
    scene.write_case("c", "");
    scene
}

impl Scene {
    pub fn path(&self) -> PathBuf {
        self.place.path().canonicalize().unwrap()
    }

    pub fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    /// Writes the Case `id`, with two harnesses, and `more` of its own.
    pub fn write_case(&self, id: &str, more: &str) -> PathBuf {
        let directory = self.path().join("cases").join(id);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("case.yaml"), case_yaml(id, more)).unwrap();
        directory
    }

    pub fn settings(&self) -> CaseServiceSettings {
        CaseServiceSettings {
            store_dir: self.store(),
            roots: WorkspaceRoots::Only(vec![self.path().join("cases")]),
            workers: 1,
            queue_max: 8,
            input_bytes_max: 1 << 20,
            egress_allow: AllowList::default(),
            egress: EgressTerms::default(),
            harness_env: Vec::new(),
            retention: None,
        }
    }

    pub fn service(&self) -> CaseService {
        self.service_with(|_| {})
    }

    pub fn service_with(&self, change: impl FnOnce(&mut CaseServiceSettings)) -> CaseService {
        let mut settings = self.settings();
        change(&mut settings);
        let runners = Arc::new(ScriptedRunners(Arc::clone(&self.script)));
        CaseService::open(settings, runners).unwrap()
    }

    /// A request for a run of the Case `id`.
    pub fn request(&self, id: &str, trials: u64) -> CaseRunRequest {
        request_of(self.path().join("cases").join(id), trials)
    }

    /// Admits a run of the Case `c`: of `nop`, so many trials.
    pub fn submit(&self, service: &CaseService, owner: &str, trials: u64) -> String {
        let mut request = self.request("c", trials);
        request.harnesses = vec!["nop".to_owned()];
        service.submit(owner, request, None).unwrap().run_id
    }

    /// What is in the directory of runs, sorted.
    pub fn stored(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.store().join("cases")) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub fn request_of(path: PathBuf, trials: u64) -> CaseRunRequest {
    CaseRunRequest {
        input: CaseInput::Path(path),
        trials: Some(trials),
        harnesses: Vec::new(),
        models: Vec::new(),
    }
}

pub fn case_yaml(id: &str, more: &str) -> String {
    format!(
        "id: {id}\ntask: {{prompt: p}}\nmatrix: {{harnesses: [nop, mine], models: [m]}}\n\
         harnesses: {{mine: {{kind: command, argv: [agent]}}}}\n{more}"
    )
}

pub fn wait_for(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < WITHIN, "the condition does not come true");
        thread::sleep(TICK);
    }
}

/// Waits until the run has ended.
pub fn wait_ended(service: &CaseService, owner: &str, id: &str) -> CaseRunView {
    wait_for(|| service.view(owner, id).unwrap().status.has_ended());
    service.view(owner, id).unwrap()
}

pub fn wait_status(service: &CaseService, id: &str, status: CaseRunStatus) {
    wait_for(|| service.view("t", id).unwrap().status == status);
}

pub fn text_of(document: Result<CaseRunDocument, CaseRunsError>) -> String {
    let CaseRunDocument { mut file, bytes } = document.unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text.len() as u64, bytes);
    text
}

/// The Cells of the results.
pub fn cells_of(service: &CaseService, id: &str) -> Vec<Value> {
    let text = text_of(service.results("t", id));
    let json: Value = serde_json::from_str(&text).unwrap();
    json["cells"].as_array().unwrap().clone()
}

/// The events of a run so far: their ids, names and data.
pub fn events_of(service: &CaseService, id: &str) -> Vec<(u64, String, Value)> {
    let mut events = service.events("t", id).unwrap();
    let mut text = String::new();
    events.file.read_to_string(&mut text).unwrap();
    let line = |line: &str| {
        let json: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
        let name = json["event"].as_str().unwrap().to_owned();
        (json["id"].as_u64().unwrap(), name, json["data"].clone())
    };
    text.lines().map(line).collect()
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
