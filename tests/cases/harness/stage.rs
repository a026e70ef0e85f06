//! A Case, a Cell and one call of a harness.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use cofferdam::case::file::{Case, load_case};
use cofferdam::cases::{
    CellExecutorKind, ChosenHarness, Executor, HarnessCall, HarnessEnd, HarnessError,
    HarnessPrompt, HarnessSetup, HarnessTerms, HarnessTrace, TRACE_BYTES_MAX,
};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

use crate::conformance::doors::Scene;

/// The key of every model here.
pub const KEY: &str = "sk-0123456789abcdef";

/// A Case whose matrix is not looked at, in a directory of its own.
pub struct Stage {
    pub scene: Scene,
    place: TempDir,
    pub terms: HarnessTerms,
    pub cancel: CancelToken,
    trace: Kept,
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stage {
    /// None where sandboxes are impossible.
    pub fn new() -> Option<Self> {
        let (scene, place) = (Scene::new()?, tempfile::tempdir().unwrap());
        let terms = HarnessTerms { trusts_case: true, ..HarnessTerms::default() };
        let cancel = CancelToken::new().unwrap();
        Some(Self { scene, place, terms, cancel, trace: Kept::default() })
    }

    /// The directory of the Case.
    pub fn directory(&self) -> &Path {
        self.place.path()
    }

    /// A Cell on the host, which is the quicker one.
    pub fn local(&self) -> Box<dyn Executor> {
        self.scene.started(CellExecutorKind::Local, "")
    }

    fn case(&self, yaml: &str) -> Case {
        let head = "id: a\nmatrix: {harnesses: [nop], models: [m]}\n";
        let task = match yaml.contains("task:") {
            true => "",
            false => "task: {prompt: Mend it.}\n",
        };
        std::fs::write(self.directory().join("case.yaml"), format!("{head}{task}{yaml}")).unwrap();
        load_case(self.directory()).unwrap().case
    }

    /// Lets the harness `name` of the Case `yaml` work in `cell`, at most `seconds`.
    pub fn work_for(
        &self,
        cell: &dyn Executor,
        yaml: &str,
        name: &str,
        seconds: f64,
    ) -> Result<HarnessEnd, HarnessError> {
        let case = self.case(yaml);
        let variables = |name: &str| (name == "MODEL_KEY").then(|| KEY.to_owned());
        let setup = HarnessSetup {
            directory: self.directory(),
            terms: &self.terms,
            variables: &variables,
            jobs: None,
        };
        let ChosenHarness { harness, egress, .. } = ChosenHarness::find(name, &case, setup)?;
        let env = [("PROVISIONED".to_owned(), Some("by the environment".to_owned()))];
        let call = HarnessCall {
            prompt: &HarnessPrompt::read(&case.task)?,
            model: "m",
            env: &BTreeMap::from(env),
            deadline: Deadline::after(Duration::from_secs_f64(seconds)),
            cancel: &self.cancel,
            egress: egress.as_ref(),
            trace: &HarnessTrace::new(self.trace.clone(), TRACE_BYTES_MAX),
        };
        harness.work(cell, &call)
    }

    /// The same with enough time.
    pub fn work(
        &self,
        cell: &dyn Executor,
        yaml: &str,
        name: &str,
    ) -> Result<HarnessEnd, HarnessError> {
        self.work_for(cell, yaml, name, 120.0)
    }

    /// The trace so far.
    pub fn trace(&self) -> String {
        String::from_utf8(self.trace.0.lock().unwrap().clone()).unwrap()
    }
}

/// The content of a file of `cell`; `None` if there is none.
pub fn content(cell: &dyn Executor, path: &str) -> Option<String> {
    cell.get(path).ok().map(|bytes| String::from_utf8(bytes).unwrap())
}
