//! From the tests to the verdict.

use std::cell::RefCell;

use serde_json::{Value, json};

use crate::scene::{EvaluationScene, WANTS_DONE, shell_agent};

const STEPS: [&str; 8] = [
    "queued",
    "downloading_task",
    "cloning_repo",
    "installing_deps",
    "running_agent",
    "running_tests",
    "cleanup",
    "done",
];

#[test]
fn b13_steps_only_move_forward() {
    let scene = EvaluationScene::new();
    let id = scene.begin(&shell_agent(&scene.serve(&WANTS_DONE), "sleep 0.3; touch done"));
    let seen = RefCell::new(Vec::new());
    let ended = scene.wait(&id, |result| {
        seen.borrow_mut().push(result.clone());
        !result["verdict"].is_null()
    });
    let place = |result: &Value| STEPS.iter().position(|step| result["step"] == *step).unwrap();
    let places: Vec<usize> = seen.borrow().iter().map(place).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(places.len() > 2 && places.contains(&4), "{places:?}");
    for result in seen.borrow().iter().filter(|result| result["verdict"].is_null()) {
        assert!(matches!(result["status"].as_str(), Some("pending" | "running")), "{result}");
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(result), keys(&ended));
    }
}

#[test]
fn b14_an_evaluation_whose_tests_pass_is_completed() {
    let scene = EvaluationScene::new();
    let result = scene.agent(&scene.serve(&WANTS_DONE), "touch done");
    let seen = ["status", "passed", "step", "verdict", "error", "failure"].map(|key| &result[key]);
    let wanted = [
        json!("completed"),
        json!(true),
        json!("done"),
        json!("resolved"),
        Value::Null,
        Value::Null,
    ];
    assert_eq!(seen.map(Clone::clone), wanted, "{result:#}");
    assert!(result["duration_ms"].as_u64().unwrap() > 0, "{result:#}");
}

#[test]
fn b15_a_failed_test_has_its_exit_code_and_later_tests_run() {
    let scene = EvaluationScene::new();
    let mut files = WANTS_DONE.to_vec();
    files[3].1 = "exit 3\n";
    files.push(("tests/pass_to_pass_1.sh", "exit 0\n"));
    let result = scene.agent(&scene.serve(&files), ":");
    let seen = ["status", "passed", "error", "step"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("failed"), json!(false), Value::Null, json!("done")], "{result:#}");
    let tests = &result["test_results"];
    assert_eq!((&tests[0]["exit_code"], &tests[0]["passed"]), (&json!(3), &json!(false)));
    assert_eq!((&tests[1]["exit_code"], &tests[1]["passed"]), (&json!(0), &json!(true)));
}

#[test]
fn b16_an_agent_that_fails_may_have_solved_the_task() {
    let scene = EvaluationScene::new();
    let result = scene.agent(&scene.serve(&WANTS_DONE), "touch done; exit 9");
    assert_eq!((&result["passed"], &result["agent"]["exit_code"]), (&json!(true), &json!(9)));
}

#[test]
fn b19_a_test_over_its_limit_fails_and_the_others_run() {
    let scene = EvaluationScene::with(&[("TEST_TIMEOUT_SECS", "1")]);
    let mut files = WANTS_DONE.to_vec();
    files[3].1 = "setsid sleep 600 & sleep 600\n";
    files.push(("tests/pass_to_pass_1.sh", "exit 0\n"));
    let result = scene.agent(&scene.serve(&files), ":");
    let tests = &result["test_results"];
    assert_eq!(tests[0]["limit"], "wall_time", "{result:#}");
    assert_eq!((&tests[0]["exit_code"], &tests[0]["passed"]), (&json!(-1), &json!(false)));
    assert_eq!(tests[1]["passed"], true, "{result:#}");
    assert_eq!(result["status"], "failed");
}

#[test]
fn b41_tests_that_ended_before_a_delete_count() {
    let scene = EvaluationScene::new();
    let [description, prompt, file, _] = WANTS_DONE;
    let url = scene.serve(&[
        description,
        prompt,
        file,
        ("tests/fail_to_pass_1.sh", "exit 1\n"),
        ("tests/fail_to_pass_2.sh", "exit 0\n"),
        ("tests/pass_to_pass_1.sh", "sleep 600\n"),
    ]);
    let id = scene.begin(&shell_agent(&url, ":"));
    let count = |result: &Value| result["test_results"].as_array().unwrap().len();
    let live = scene.wait(&id, |result| count(result) == 2);
    assert_eq!(scene.ask("DELETE", &format!("/evaluate/{id}"), "").status, 202);
    let ended = scene.end(&id);
    assert_eq!((&ended["verdict"], count(&ended)), (&json!("cancelled"), 2), "{ended:#}");
    for result in [live, ended] {
        assert_eq!(result["fail_to_pass"], json!({"passed": 1, "total": 2}), "{result:#}");
        assert_eq!(result["pass_to_pass"], json!({"passed": 0, "total": 0}), "{result:#}");
    }
}

#[test]
fn b28_without_a_test_nothing_passes() {
    let scene = EvaluationScene::new();
    let result = scene.agent(&scene.serve(&WANTS_DONE[..3]), ":");
    let seen = ["verdict", "status", "passed"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("no_tests"), json!("failed"), Value::Null], "{result:#}");
    assert_eq!(result["failure"]["code"], "tests.none");
}

#[test]
fn b29_tests_are_sorted_by_the_bytes_of_their_names() {
    let scene = EvaluationScene::new();
    let mut files = WANTS_DONE[..3].to_vec();
    for name in ["tests/t10.sh", "tests/t2.sh", "tests/t1.sh", "tests/a/z.sh"] {
        files.push((name, "exit 0\n"));
    }
    let result = scene.agent(&scene.serve(&files), ":");
    let tests = result["test_results"].as_array().unwrap().iter();
    let names: Vec<&str> = tests.map(|test| test["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a/z.sh", "t1.sh", "t10.sh", "t2.sh"]);
}

#[test]
fn b30_checks_are_commands_by_their_lines_without_scripts() {
    let scene = EvaluationScene::new();
    let mut files = WANTS_DONE[..3].to_vec();
    files.push(("checks.txt", "# comment\n\ntrue\nfalse\n"));
    let result = scene.agent(&scene.serve(&files), ":");
    let tests = result["test_results"].as_array().unwrap().iter();
    let seen: Vec<_> =
        tests.map(|test| (test["name"].as_str().unwrap(), &test["passed"])).collect();
    assert_eq!(seen, [("checks.txt:3", &json!(true)), ("checks.txt:4", &json!(false))]);
    files.push(("tests/fail_to_pass_1.sh", "exit 0\n"));
    let result = scene.agent(&scene.serve(&files), ":");
    assert_eq!(result["test_results"].as_array().unwrap().len(), 1, "{result:#}");
}
