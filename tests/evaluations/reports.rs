//! Tasks whose tests write a report: Harbor's reward, and JUnit files of converted tasks.

use std::fs;

use serde_json::{Value, json};

use crate::scene::Scene;
use crate::tasks::{task, write};

fn harbor(test: &str) -> Scene {
    Scene::new(&[
        ("task.toml", "version = \"1.0\"\n[verifier]\ntimeout_sec = 20.0\n"),
        ("files/answer", "41\n"),
        ("tests/test.sh", test),
    ])
}

#[test]
fn a_reward_decides_and_not_the_exit_code() {
    for (test, verdict, reward, code) in [
        ("echo 1 > /logs/verifier/reward.txt; exit 3", "resolved", json!(1.0), 0),
        ("echo '{\"reward\": 0.5}' > /logs/verifier/reward.json", "partial", json!(0.5), 1),
        ("echo 0 > /logs/verifier/reward.txt", "unresolved", json!(0.0), 1),
    ] {
        let ended = harbor(test).evaluate(&["--nop", "--json"]);
        let result = ended.json();
        assert_eq!((ended.code, &result["verdict"]), (code, &json!(verdict)), "{test}: {result:#}");
        assert_eq!(result["reward"], reward, "{test}");
        assert_eq!(result["test_results"][0]["passed"], reward == json!(1.0), "{test}");
        assert_eq!(result["step"], "done");
    }
}

#[test]
fn what_is_no_reward_is_an_infra_error() {
    for test in [
        "exit 0",
        "echo 2 > /logs/verifier/reward.txt",
        "echo '{\"reward\": 1, \"more\": 1}' > /logs/verifier/reward.json",
        "echo 1 > /logs/verifier/one; ln -s one /logs/verifier/reward.txt",
        "mkfifo /logs/verifier/reward.txt",
        "mkdir /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "mkdir /logs/other; echo 1 > /logs/other/reward.txt; rmdir /logs/verifier; ln -s other /logs/verifier",
        "(printf 1; head -c 8192 /dev/zero | tr '\\0' ' ') > /logs/verifier/reward.txt",
    ] {
        let ended = harbor(test).evaluate(&["--nop", "--json"]);
        let result = ended.json();
        assert_eq!((ended.code, &result["verdict"]), (4, &json!("infra_error")), "{test}");
        assert_eq!(result["failure"]["code"], "task.invalid", "{test}");
        let details = &result["failure"]["details"];
        assert!(details["file"].as_str().unwrap().starts_with("/logs/verifier/"), "{result:#}");
        assert_eq!(details.get("field"), Some(&Value::Null), "{result:#}");
        assert_eq!((&result["reward"], &result["passed"]), (&Value::Null, &Value::Null), "{test}");
    }
}

#[test]
fn an_agent_cannot_write_the_reward_of_its_test() {
    let scene = harbor("test -e /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt");
    let result = scene.agent(
        "mkdir -p /logs/verifier 2> /dev/null && echo 1 > /logs/verifier/reward.txt\n\
         mkdir -p logs/verifier /tmp/logs/verifier; echo 1 | tee {,/tmp/}logs/verifier/reward.txt",
    );
    assert_eq!((&result["verdict"], &result["reward"]), (&json!("unresolved"), &json!(0.0)));
}

const HARBOR: [(&str, &str); 7] = [
    (
        "harbor/task.toml",
        "version = \"1.0\"\n[agent]\ntimeout_sec = 60.0\n\
         [verifier.env]\nRIGHT = \"42\"\n[solution.env]\nFROM = \"/solution\"\n",
    ),
    ("harbor/instruction.md", "Make answer hold 42.\n"),
    ("harbor/environment/Dockerfile", "FROM debian\nENV LEVEL=7\nWORKDIR /app\nCOPY answer .\n"),
    ("harbor/environment/answer", "41\n"),
    (
        "harbor/solution/solve.sh",
        "#!/bin/bash\nset -e\ntest \"$LEVEL$RIGHT\" = 7\ncp \"$FROM\"/value answer\n",
    ),
    ("harbor/solution/value", "42\n"),
    (
        "harbor/tests/test.sh",
        "ls -d /solution && exit\ntest \"$PWD$LEVEL$FROM\" = /app7 || exit\n\
         grep -qx \"$RIGHT\" answer; echo $((1 - $?)) > /logs/verifier/reward.txt\n",
    ),
];

#[test]
fn the_script_of_a_harbor_task_solves_it_and_no_agent_or_test_sees_it() {
    let scene = Scene::new(&[]);
    write(&scene.path("."), &HARBOR);
    let (harbor, converted) = (scene.path("harbor"), scene.path("converted"));
    let (from, to) = (harbor.to_str().unwrap(), converted.to_str().unwrap());
    let output = task(&["convert", "harbor", from, "--out", to]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let spy = scene.write(
        "spy.sh",
        "ls -d /solution ./*solution* /task/* 2> /tmp/x; pwd; cat answer; echo $RIGHT$FROM\n",
    );
    for path in [from, to] {
        let script = format!("{path}/solution/solve.sh");
        let solved = scene.evaluate_task(path, &["--oracle", &script, "--json"]);
        let result = solved.json();
        assert_eq!((solved.code, &result["reward"]), (0, &json!(1.0)), "{path}: {result:#}");
        assert_eq!(result["agent"]["exit_code"], 0);
        let result = scene.evaluate_task(path, &["--agent", &spy, "--json"]).json();
        assert_eq!((&result["verdict"], &result["reward"]), (&json!("unresolved"), &json!(0.0)));
        assert_eq!(result["agent_output"], "/task/prompt.md\n/app\n41\n\n");
    }
}

#[test]
fn a_harbor_task_is_bounded_as_it_asks() {
    let evaluate = |description: &str, arguments: &[&str]| {
        let scene = Scene::new(&[]);
        write(&scene.path("."), &HARBOR);
        write(&scene.path("harbor"), &[("task.toml", description)]);
        let agent =
            scene.write("agent.py", "import time\nx = b'x' * (300 << 20)\ntime.sleep(60)\n");
        let test = "grep -x 41 answer && sleep 60; echo 1 > /logs/verifier/reward.txt\n";
        write(&scene.path("harbor"), &[("tests/test.sh", test)]);
        let task = scene.path("harbor");
        let given = ["--agent", &agent, "--json"];
        let arguments = if arguments.is_empty() { &given[..] } else { arguments };
        scene.evaluate_task(task.to_str().unwrap(), arguments).json()
    };
    let result = evaluate("[agent]\ntimeout_sec = 1.0\n", &[]);
    assert_eq!(
        (&result["verdict"], &result["failure"]["limit"]),
        (&json!("timed_out"), &json!("wall_time"))
    );
    let result = evaluate("[agent]\ntimeout_sec = 30.0\n[environment]\nmemory = \"64M\"\n", &[]);
    assert_eq!(result["agent"]["limit"], "memory", "{result:#}");
    let result = evaluate("[verifier]\ntimeout_sec = 1\n", &["--nop", "--json"]);
    assert_eq!(result["test_results"][0]["limit"], "wall_time", "{result:#}");
}

#[test]
fn the_build_timeout_of_a_harbor_task_bounds_install() {
    let scene = Scene::new(&[
        ("workspace.yaml", "files: files\ninstall:\n  - sleep 60\n"),
        ("task.toml", "[environment]\nbuild_timeout_sec = 1\n"),
        ("files/answer", "41\n"),
        ("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n"),
    ]);
    let result = scene.evaluate(&["--nop", "--json"]).json();
    assert_eq!(result["failure"]["code"], "install.failed", "{result:#}");
    assert_eq!(result["failure"]["limit"], "wall_time");
}

#[test]
fn another_script_is_the_solution_if_it_is_given() {
    let scene = Scene::new(&[]);
    write(&scene.path("."), &HARBOR);
    let other = scene.write("other.sh", "echo 43 > answer\n");
    let result = scene
        .evaluate_task(scene.path("harbor").to_str().unwrap(), &["--oracle", &other, "--json"]);
    assert_eq!(result.json()["reward"], json!(0.0), "{result:?}");
}

/// Runs unittest with the options of pytest that converted tasks use, and writes its JUnit file.
const RUNNER: &str = r#"
import sys, unittest
from xml.sax.saxutils import quoteattr
out = next(a for a in sys.argv if a.startswith("--junitxml=")).split("=", 1)[1]
lines = []
class Result(unittest.TestResult):
    def case(self, test, inner=""):
        head = f"<testcase classname={quoteattr(type(test).__module__ + '.' + type(test).__name__)}"
        lines.append(f"{head} name={quoteattr(test._testMethodName)} time='0'>{inner}</testcase>")
    def addSuccess(self, test): self.case(test)
    def addSkip(self, test, reason): self.case(test, f"<skipped type='pytest.skip' message={quoteattr(reason)}/>")
    def addExpectedFailure(self, test, error): self.case(test, "<skipped type='pytest.xfail' message=''/>")
    def addFailure(self, test, error): self.case(test, f"<failure message={quoteattr(str(error[1]))}/>")
    addError = addFailure
for path in sys.argv[1:]:
    if path.endswith(".py"):
        unittest.defaultTestLoader.loadTestsFromName(path[:-3].replace("/", ".")).run(Result())
open(out, "w").write("<testsuites><testsuite>" + "".join(lines) + "</testsuite></testsuites>")
"#;

const TESTS: &str = "import unittest
import mod


class T(unittest.TestCase):
    def test_value(self): self.assertEqual(mod.VALUE, 42)
    def test_type(self): self.assertIsInstance(mod.VALUE, int)
    @unittest.skip('here')
    def test_skipped(self): pass
    @unittest.expectedFailure
    def test_xfail(self): self.assertEqual(mod.VALUE, 41)
";

/// A converted task over files of its own, whose test patch makes `t/test_mod.py`.
fn converted(fail_to_pass: &[&str], pass_to_pass: &[&str]) -> Scene {
    let scene = Scene::new(&[]);
    let added: String = TESTS.lines().map(|line| format!("+{line}\n")).collect();
    let count = TESTS.lines().count();
    let instance = json!({
        "instance_id": "a__b-1", "repo": "a/b",
        "base_commit": "0123456789abcdef0123456789abcdef01234567",
        "patch": "diff --git a/mod.py b/mod.py\n--- a/mod.py\n+++ b/mod.py\n@@ -1 +1 @@\n-VALUE = 41\n+VALUE = 42\n",
        "test_patch": format!("diff --git a/t/test_mod.py b/t/test_mod.py\nnew file mode 100644\n\
                               --- /dev/null\n+++ b/t/test_mod.py\n@@ -0,0 +1,{count} @@\n{added}"),
        "problem_statement": "Mend it.\n",
        "FAIL_TO_PASS": fail_to_pass, "PASS_TO_PASS": pass_to_pass,
    });
    let file = scene.write("instance.json", &instance.to_string());
    let out = scene.path("task");
    fs::remove_dir_all(&out).unwrap();
    let output = task(&[
        "convert",
        "swebench",
        &file,
        "--test-cmd",
        "python3 runner.py",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let description = fs::read_to_string(out.join("workspace.yaml")).unwrap();
    let rest = description.split_once("language").unwrap().1;
    write(
        &out,
        &[
            ("workspace.yaml", &format!("files: files\nlanguage{rest}")),
            ("files/mod.py", "VALUE = 41\n"),
            ("files/runner.py", RUNNER),
            ("files/t/__init__.py", ""),
        ],
    );
    scene
}

#[test]
fn a_converted_task_is_graded_by_each_id_of_its_junit_file() {
    let value = "t/test_mod.py::T::test_value";
    let (kind, skipped) = ("t/test_mod.py::T::test_type", "t/test_mod.py::T::test_skipped");
    let xfail = "t/test_mod.py::T::test_xfail";
    for (fail_to_pass, pass_to_pass, oracle, nop) in [
        (&[value][..], &[kind, skipped][..], "resolved", "unresolved"),
        (&[value, skipped], &[kind], "partial", "unresolved"),
        (&[value, xfail], &[kind], "resolved", "unresolved"),
        (&[value], &["t/test_mod.py::T::test_absent"], "unresolved", "unresolved"),
    ] {
        let scene = converted(fail_to_pass, pass_to_pass);
        let solution = scene.path("task/solution.patch");
        let result = scene.evaluate(&["--oracle", solution.to_str().unwrap(), "--json"]).json();
        assert_eq!(result["verdict"], oracle, "{result:#}");
        let names: Vec<_> = result["test_results"].as_array().unwrap().iter().collect();
        let ids: Vec<&str> = names.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(ids, [fail_to_pass, pass_to_pass].concat());
        assert_eq!(names[0]["kind"], "fail_to_pass");
        assert_eq!(result["fail_to_pass"]["total"], fail_to_pass.len());
        assert!(result["test_output"].as_str().unwrap().contains("=== run_ids.sh (exit 0) ==="));
        assert_eq!(scene.evaluate(&["--nop", "--json"]).json()["verdict"], nop);
    }
}

#[test]
fn a_forged_or_missing_report_of_the_agents_grades_nothing() {
    let scene = converted(&["t/test_mod.py::T::test_value"], &[]);
    for agent in [
        "echo \"<testsuite><testcase classname='t.test_mod.T' name='test_value'/></testsuite>\" \
         > /tmp/cofferdam-junit.xml; echo 'raise SystemExit(0)' > mod.py",
        "mkdir -p /tmp/cofferdam-junit.xml/x; echo 'VALUE =' > mod.py",
        "mkdir -p t; echo 'raise SystemExit' > t/test_mod.py",
    ] {
        let result = scene.agent(agent);
        assert_eq!(result["verdict"], "unresolved", "{agent}: {result:#}");
        assert_eq!(result["fail_to_pass"], json!({"passed": 0, "total": 1}), "{agent}");
    }
}
