//! Agents that want their evaluation resolved without mending anything, and those who send tasks.

mod graded;
mod seen;
mod sent;

use cofferdam_test_server::evaluations::{EvaluationScene, shell_agent};
use serde_json::Value;

use crate::target::Target;
use crate::{Row, Unexercised};

pub const ROWS: &[Row] = &[
    Row {
        id: "W170",
        guarantee: "no file that an agent leaves decides how tests run",
        attack: graded::files_that_decide,
    },
    Row {
        id: "W171",
        guarantee: "tests are the task's, whatever the agent left in their places or above them",
        attack: graded::things_in_the_place_of_tests,
    },
    Row {
        id: "W172",
        guarantee: "of an agent's work only compared files reach tests: no program, no setting, nothing of its git",
        attack: graded::things_beside_the_files,
    },
    Row {
        id: "W173",
        guarantee: "a test finds nothing that code under test left in another test",
        attack: graded::code_in_an_earlier_test,
    },
    Row {
        id: "W174",
        guarantee: "an agent sees neither the tests nor the solution of its task",
        attack: seen::tests_and_solution,
    },
    Row {
        id: "W175",
        guarantee: "an agent cannot fetch its task",
        attack: seen::the_task_at_its_url,
    },
    Row {
        id: "W176",
        guarantee: "an agent's environment has nothing of the service's",
        attack: seen::environment_of_the_service,
    },
    Row {
        id: "W177",
        guarantee: "an agent's repository ends at its commit, by whatever name it asks for later ones",
        attack: seen::later_commits,
    },
    Row {
        id: "W178",
        guarantee: "no output shows the secret values of an agent, however they are cut",
        attack: sent::secret_values,
    },
    Row {
        id: "W179",
        guarantee: "a patch over its limit is not resolved, whatever it mends",
        attack: sent::too_large_a_patch,
    },
    Row {
        id: "W180",
        guarantee: "an archive with one unsafe entry fails by the entry's name and runs nothing",
        attack: sent::unsafe_archives,
    },
    Row {
        id: "W181",
        guarantee: "an evaluation of another token is as if it did not exist",
        attack: sent::evaluations_of_another_token,
    },
];

/// A service with evaluations that has the target's walls.
fn scene(target: &Target, env: &[(&str, &str)]) -> Result<EvaluationScene, Unexercised> {
    let setup = target.own()?.another().env("STANDBY_MAX", "0");
    Ok(EvaluationScene::over(setup, env))
}

/// A program that is wrong, with a test that shows it, and one that only loads it first.
const PROGRAM: [(&str, &str); 8] = [
    ("workspace.yaml", "files: files\n"),
    ("prompt.md", "VALUE has to be 42.\n"),
    ("files/mod.py", "VALUE = 41\n"),
    ("files/test_mod.py", "import unittest\n"),
    ("files/checks/keep", ""),
    ("tests/a_loads.sh", "python3 -c 'import mod'\n"),
    ("tests/fail_to_pass_1.sh", "PYTHONPATH=. python3 -m unittest -q test_mod checks.test_deep\n"),
    ("tests/checks/test_deep.py", TEST),
];

const TEST: &str = "import unittest\n\nimport mod\n\n\nclass TestMod(unittest.TestCase):\n    \
                    def test_value(self):\n        self.assertEqual(mod.VALUE, 42)\n";

/// Serves [`PROGRAM`] with `files` besides.
fn serve(scene: &EvaluationScene, files: &[(&str, &str)]) -> String {
    let all = [&PROGRAM[..], &[("tests/test_mod.py", TEST)], files].concat();
    scene.serve(&all)
}

/// Checks that an agent in bash does all that it wants on the task at `url`, and wins nothing.
#[track_caller]
fn wins_nothing(scene: &EvaluationScene, url: &str, agent: &str) -> Value {
    let result = scene.agent(url, &format!("set -e\n{agent}"));
    assert_eq!(result["agent"]["exit_code"], 0, "{agent}: {result:#}");
    assert_eq!(result["verdict"], "unresolved", "{agent}: {result:#}");
    result
}

/// Checks that the task at `url` is resolved by an agent that mends the program, so that a row with the
/// same task can break.
#[track_caller]
fn is_resolved(scene: &EvaluationScene, url: &str, agent: &str) {
    let result = scene.evaluate(&shell_agent(url, agent));
    assert_eq!(result["verdict"], "resolved", "{agent}: {result:#}");
}
