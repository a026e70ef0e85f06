//! A Cell with pytest in its environment, in which one agent after the other is graded.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::time::Duration;

use super::Forger;
use crate::conformance::doors::Scene;
use cofferdam::case::cell::{CellExecutor, CellExecutorKind, ExecRequest};
use cofferdam::case::grade::pytest::{
    PytestGrade, PytestTask, PytestWanted, RunnerReport, SwebenchGrades, grade_pytest,
    grade_swebench, run_pytest,
};

/// The fraction of the tests that pass with a wrong sum.
pub const HONEST: f64 = 2.0 / 3.0;
/// The tested module.
pub const MODULE: &str = "calc.py";
/// Its tests.
pub const NAME: &str = "tests/test_calc.py";
pub const TESTS: &str = "\
import time

from calc import add, sub


def test_sub():
    assert sub(3, 2) == 1


def test_add():
    assert add(1, 2) == 3


def test_last():
    time.sleep(0.4)
";
/// Tests with ids of every form.
pub const IDS: &str = r#"
import pytest


@pytest.mark.parametrize("value", ["a b", "x::y", "\u00e9", "["])
def test_p(value):
    pass


class TestC:
    def test_m(self):
        pass

    @pytest.mark.skip
    def test_skipped(self):
        pass


@pytest.mark.xfail
def test_xfail():
    raise ValueError


def test_skips_itself():
    pytest.skip()
"#;
const TIMEOUT: Duration = Duration::from_secs(120);

/// The Cell.
pub struct GradedCell {
    cell: Box<dyn CellExecutor>,
    env: BTreeMap<String, Option<String>>,
    // Its directory lasts for the Cell.
    _scene: Scene,
}

impl GradedCell {
    /// None where sandboxes are impossible.
    pub fn new(kind: CellExecutorKind) -> Option<Self> {
        let scene = Scene::new()?;
        let cell = scene.started(kind, "");
        let place = cell.describe().unwrap().env.display().to_string();
        let packages = env::var_os("CASE_PYTEST").expect("CASE_PYTEST, a folder of packages");
        let archive = Command::new("tar").arg("-C").arg(packages).args(["-cf", "-", "."]).output();
        cell.put(&format!("{place}/packages.tar"), &archive.unwrap().stdout, 0o644).unwrap();
        let path = format!("{place}/bin:/usr/local/bin:/usr/bin:/bin");
        let env = BTreeMap::from([("PATH".to_owned(), Some(path))]);
        let graded = Self { cell, env, _scene: scene };
        graded.shell(&format!(
            "python3 -m venv --without-pip {place} && tar -C {place}/lib/python3.*/site-packages -xf {place}/packages.tar"
        ));
        Some(graded)
    }

    fn shell(&self, command: &str) {
        let request = ExecRequest { shell: true, ..ExecRequest::new([command]) };
        let result = self.cell.run(&request).unwrap();
        assert_eq!(result.exit_code, Some(0), "{}", result.stderr.text);
    }

    /// The tree that is graded: the module of the agent, its files, and the tests.
    fn fill(&self, forger: &Forger) {
        self.shell("find . -mindepth 1 -delete");
        let module = forger.whole_module();
        let own = [(MODULE, module.as_str()), (NAME, TESTS)];
        let files = forger.files.iter().map(|(path, content)| (path.as_str(), content.as_str()));
        for (path, content) in files.chain(own) {
            self.cell.put(path, content.as_bytes(), 0o644).unwrap();
        }
    }

    fn run(&self, forger: &Forger, task: &PytestTask) -> RunnerReport {
        self.fill(forger);
        match run_pytest(self.cell.as_ref(), task, self.env.clone(), TIMEOUT) {
            Ok(run) => run.report,
            // An agent can kill what runs it on the host.
            Err(error) => RunnerReport::Unusable(format!("{error:?}")),
        }
    }

    /// Its grade by `pytest`.
    pub fn pytest(&self, forger: &Forger) -> PytestGrade {
        let report = self.run(forger, &PytestTask::of_names(&[NAME.into()]));
        grade_pytest(&report, PytestWanted { expect_total: None, pass_threshold: 1.0 })
    }

    /// Its grades by `swebench`.
    pub fn swebench(&self, forger: &Forger) -> SwebenchGrades {
        let id = |name: &str| format!("{NAME}::{name}");
        self.graded(forger, &[id("test_add")], &[id("test_sub"), id("test_last")])
    }

    /// The grades of `ids`, in both lists.
    pub fn ids(&self, forger: &Forger, ids: &[&str]) -> SwebenchGrades {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        self.graded(forger, &ids, &ids)
    }

    fn graded(&self, forger: &Forger, fixed: &[String], held: &[String]) -> SwebenchGrades {
        let prefix = "env A=1 python3 -m pytest -q -p no:cacheprovider";
        let task = PytestTask::of_ids(prefix, fixed.iter().chain(held)).unwrap();
        grade_swebench(&self.run(forger, &task), fixed, held)
    }
}

impl Drop for GradedCell {
    fn drop(&mut self) {
        self.cell.stop();
    }
}
