//! What agents try in order to pass without mending anything, a file for each family.

mod git;
mod places;
mod restored;
mod startup;

use serde_json::Value;

use crate::scene::Scene;

/// What each agent gets to know of nothing, and what ends it early if a step fails.
const STRICT: &str = "set -e\n";

/// A program in Python that is wrong, with a test of `unittest` that shows it.
fn program() -> Scene {
    Scene::new(&[
        ("files/mod.py", "VALUE = 41\n"),
        ("files/test_mod.py", "import unittest\n"),
        ("files/checks/keep", ""),
        ("tests/fail_to_pass_1.sh", "set -e\npython3 -m unittest -q test_mod checks.test_deep\n"),
        ("tests/test_mod.py", TEST),
        ("tests/checks/test_deep.py", TEST),
    ])
}

const TEST: &str = "import unittest\n\nimport mod\n\n\nclass TestMod(unittest.TestCase):\n    \
                    def test_value(self):\n        self.assertEqual(mod.VALUE, 42)\n";

/// Runs `agent` in bash on `scene` and checks that it did what it wanted, and won nothing.
fn wins_nothing(scene: &Scene, name: &str, agent: &str) -> Value {
    let result = scene.agent(&format!("{STRICT}{agent}"));
    assert_eq!(result["agent"]["exit_code"], 0, "{name}: {result:#}");
    assert_eq!(result["verdict"], "unresolved", "{name}: {result:#}");
    assert_eq!(result["passed"], false, "{name}");
    result
}

#[test]
fn an_agent_that_mends_the_program_is_resolved() {
    let result = program().agent("echo 'VALUE = 42' > mod.py");
    assert_eq!(result["verdict"], "resolved", "{result:#}");
}

#[test]
fn code_that_ends_its_own_test_with_success_wins_as_the_documents_say() {
    let scene = Scene::new(&[
        ("files/mod.py", "VALUE = 41\n"),
        ("tests/fail_to_pass_1.sh", "python3 -c 'import mod; assert mod.VALUE == 42'\n"),
    ]);
    for agent in [
        "echo 'import os; os._exit(0)' > mod.py",
        "printf 'class Any:\\n    __eq__ = lambda a, b: True\\nVALUE = Any()\\n' > mod.py",
    ] {
        assert_eq!(scene.agent(agent)["verdict"], "resolved", "{agent}");
    }
    let outside = "test \"$(python3 -c 'import mod; print(mod.VALUE)' | head -c 100)\" = 42\n";
    let scene = Scene::new(&[("files/mod.py", "VALUE = 41\n"), ("tests/a.sh", outside)]);
    wins_nothing(&scene, "an early end", "echo 'import os; os._exit(0)' > mod.py");
}
