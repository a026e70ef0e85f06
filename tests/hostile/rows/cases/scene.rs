//! A Case in a directory, and its runs by the command line with the target's walls.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use cofferdam_test_server::service::cofferdam;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Unexercised;
use crate::target::Target;

/// The harness that mends the program.
const HONEST: &str = "honest";
/// A program that is wrong: a test with [`TEST`] shows it.
pub const WRONG: &str = "VALUE = 41\n";
/// The test that shows it.
pub const TEST: &str = "import unittest\n\nimport mod\n\n\nclass TestMod(unittest.TestCase):\n    \
                        def test_value(self):\n        self.assertEqual(mod.VALUE, 42)\n";
/// What mends it.
pub const MENDS: &str = "echo 'VALUE = 42' > mod.py";

/// A Case.
#[derive(Debug)]
pub struct CaseScene {
    directory: TempDir,
    case: Value,
    variables: BTreeMap<String, String>,
}

/// A run that has not ended.
#[derive(Debug)]
pub struct CaseRun(Child);

/// The results of a run.
#[derive(Debug)]
pub struct CaseResults(PathBuf);

impl CaseScene {
    /// A Case with [`WRONG`] as its source and the files of `files`. `blocks` are those of the case file, besides
    /// harnesses and the matrix.
    pub fn new(
        target: &Target,
        files: &[(&str, &str)],
        blocks: Value,
    ) -> Result<Self, Unexercised> {
        let own = target.own()?;
        let wall = own.wall().map(|wall| ("COFFERDAM_WITHOUT".to_owned(), wall.to_owned()));
        let scene = Self {
            directory: tempfile::tempdir().unwrap(),
            case: blocks,
            variables: wall.into_iter().collect(),
        };
        for (path, content) in [("src/mod.py", WRONG)].iter().chain(files) {
            write(&scene.path().join(path), content);
        }
        Ok(scene)
    }

    /// The directory of the Case.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("case")
    }

    /// Sets a variable of the supervisor.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// Lets `agents` work, scripts of bash by name, each in a Cell of its own. All of them do what they want to, and none
    /// passes or scores, while `honest` does.
    #[track_caller]
    pub fn wins_nothing(&self, honest: &str, agents: &[(&str, &str)]) -> CaseResults {
        let results = self.run(&[agents, &[(HONEST, honest)]].concat(), 1);
        let passed = results.of(HONEST, 1);
        assert_eq!(passed["overall_passed"], true, "{honest}: {passed:#}");
        for (name, agent) in agents {
            let result = results.of(name, 1);
            assert_eq!(result["agent"]["exit_code"], 0, "{agent}: {result:#}");
            assert_lost(&result);
        }
        results
    }

    /// Lets `agents` work, each in so many trials, one after the other.
    #[track_caller]
    pub fn run(&self, agents: &[(&str, &str)], trials: u32) -> CaseResults {
        self.begin(agents, trials).end()
    }

    /// The same, not waited for.
    pub fn begin(&self, agents: &[(&str, &str)], trials: u32) -> CaseRun {
        let harness = |script: &str| json!({"kind": "command", "argv": ["bash", "-c", script], "timeout_s": 120});
        let harnesses: BTreeMap<_, _> =
            agents.iter().map(|(name, script)| (*name, harness(script))).collect();
        let names: Vec<_> = agents.iter().map(|(name, _)| *name).collect();
        let mut case = json!({
            "id": "hostile",
            "task": {"prompt": "VALUE has to be 42."},
            "source": {"path": "src"},
            "harnesses": harnesses,
            "matrix": {"harnesses": names, "models": ["m"], "trials": trials},
        });
        let blocks = self.case.as_object().unwrap().clone();
        case.as_object_mut().unwrap().extend(blocks);
        // JSON is YAML.
        write(&self.path().join("case.yaml"), &case.to_string());
        let mut command = Command::new(cofferdam());
        command.args(["case", "run"]).arg(self.path());
        command.arg("--store-dir").arg(self.store()).args(["--executor", "sandboxed"]);
        command.envs(&self.variables).stdout(Stdio::piped()).stderr(Stdio::piped());
        CaseRun(command.spawn().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Whether the newest run has a Cell whose agent has ended.
    pub fn has_ended_agent(&self) -> bool {
        let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let cells =
            below(self.store().join("cases")).flat_map(|run| below(run.path().join("cells")));
        cells.into_iter().any(|cell| {
            let commands = fs::read_to_string(cell.path().join("commands.jsonl"));
            commands.unwrap_or_default().contains("\"agent\"")
        })
    }
}

impl CaseRun {
    /// Waits for the end.
    #[track_caller]
    pub fn end(self) -> CaseResults {
        let Output { stdout, stderr, .. } = self.0.wait_with_output().unwrap();
        let answer = serde_json::from_slice::<Value>(&stdout);
        let answer = answer.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&stderr)));
        CaseResults(PathBuf::from(answer["dir"].as_str().unwrap()))
    }
}

impl CaseResults {
    /// The result of a trial.
    #[track_caller]
    pub fn of(&self, agent: &str, trial: u32) -> Value {
        serde_json::from_str(&self.file(agent, trial, "result.json")).unwrap()
    }

    /// What the agent of a trial printed.
    #[track_caller]
    pub fn output(&self, agent: &str, trial: u32) -> String {
        self.file(agent, trial, "output.txt")
    }

    /// A file of a trial.
    #[track_caller]
    pub fn file(&self, agent: &str, trial: u32, name: &str) -> String {
        let cell = format!("cells/hostile__{agent}__m__t{trial}");
        fs::read_to_string(self.0.join(cell).join(name)).unwrap()
    }
}

/// Checks that a trial was graded and scored nothing.
#[track_caller]
pub fn assert_lost(result: &Value) {
    assert_eq!(result["status"], "done", "{result:#}");
    assert_eq!(result["overall_passed"], false, "{result:#}");
    assert_eq!(result["overall_score"], 0.0, "{result:#}");
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}
