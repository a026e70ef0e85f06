//! How trials end that do not come to a grade.

use std::fs;

use serde_json::json;

use super::scene::{HIDDEN_TEST, Scene};

#[test]
fn a_step_that_fails_is_named_with_its_code_and_the_end_of_its_output() {
    let matrix = "matrix: {harnesses: [nop], models: [m]}\n";
    for (block, code, step, message, tail) in [
        (
            "environment: {kind: command, commands: ['true', 'echo broken; exit 3']}\n",
            "provision.failed",
            "provision",
            "environment command failed: echo broken; exit 3",
            Some("broken\n"),
        ),
        (
            "environment: {kind: command, timeout_s: 2, commands: [sleep 1, sleep 1, sleep 1, sleep 1]}\n",
            "provision.timed_out",
            "provision",
            "environment command failed: sleep 1",
            None,
        ),
        (
            "setup: {run: ['echo no >&2; false']}\n",
            "setup.failed",
            "setup",
            "setup command failed: echo no >&2; false",
            Some("no\n"),
        ),
        (
            "setup: {stub: [{file: add.py, function: missing}]}\n",
            "setup.failed",
            "setup",
            "setup.stub: add.py",
            None,
        ),
    ] {
        let Some(scene) = Scene::new(&format!("{block}{matrix}{HIDDEN_TEST}")) else { return };
        let end = scene.run(&[]);
        assert_eq!((end.code, end.cells()), (Some(4), [0, 1, 0, 0]), "{}", end.stderr);
        let error = &scene.result(&end, "nop", 1)["error"];
        assert_eq!((&error["code"], &error["step"]), (&json!(code), &json!(step)), "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
        assert!(tail.is_none() || error["tail"] == json!(tail), "{error}");
        scene.assert_nothing_left();
    }
}

#[test]
fn a_stubbed_function_fails_until_the_agent_writes_it() {
    let blocks = format!(
        "setup: {{stub: [{{file: add.py, function: add}}]}}
harnesses: {{mine: {{kind: command, argv: [sh, -c, \"cat add.py; echo 'def add(a, b): return a + b' > add.py\"]}}}}
matrix: {{harnesses: [nop, mine], models: [m]}}\n{HIDDEN_TEST}"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    let end = scene.run(&[]);
    assert_eq!(scene.result(&end, "nop", 1)["overall_score"], json!(0.0));
    assert_eq!(scene.result(&end, "mine", 1)["overall_score"], json!(1.0));
    let output = fs::read_to_string(scene.cell(&end, "mine", 1).join("output.txt")).unwrap();
    assert_eq!(output, "def add(a, b):\n    raise NotImplementedError\n");
}

#[test]
fn an_agent_that_is_late_or_fails_is_graded_and_a_patch_that_is_too_long_is_zero() {
    let blocks = format!(
        "limits: {{patch_bytes: 1000}}
harnesses:
  late: {{kind: command, argv: [sh, -c, \"sed -i 's/a - b/a + b/' add.py; sleep 60\"], timeout_s: 4}}
  bad: {{kind: command, argv: [sh, -c, \"sed -i 's/a - b/a + b/' add.py; exit 7\"]}}
  long: {{kind: command, argv: [sh, -c, \"sed -i 's/a - b/a + b/' add.py; seq 9999 > n\"]}}
matrix: {{harnesses: [late, bad, long, aider], models: [m]}}\n{HIDDEN_TEST}"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    let end = scene.run(&[]);
    assert_eq!((end.code, end.cells()), (Some(4), [3, 1, 0, 0]), "{}", end.stderr);
    let late = scene.result(&end, "late", 1);
    assert_eq!(
        (&late["agent"]["outcome"], &late["overall_score"]),
        (&json!("timed_out"), &json!(1.0))
    );
    let bad = scene.result(&end, "bad", 1);
    assert_eq!((&bad["agent"]["exit_code"], &bad["overall_score"]), (&json!(7), &json!(1.0)));
    let long = scene.result(&end, "long", 1);
    assert_eq!((&long["status"], &long["overall_score"]), (&json!("done"), &json!(0.0)));
    assert_eq!((&long["error"]["code"], &long["scores"]), (&json!("patch.too_large"), &json!([])));
    let aider = scene.result(&end, "aider", 1);
    assert_eq!(aider["error"]["code"], "harness.failed", "{aider}");
}

#[test]
fn an_optional_case_whose_repository_cannot_be_reached_is_skipped() {
    let blocks = "matrix: {harnesses: [nop], models: [m]}\n";
    let Some(scene) = Scene::new(blocks) else { return };
    let yaml = fs::read_to_string(scene.case().join("case.yaml")).unwrap();
    let commit = "0".repeat(40);
    let source = format!("source: {{repo: 'http://127.0.0.1:9/x', commit: '{commit}'}}");
    for (availability, code, cells) in
        [("optional", 0, [0, 0, 1, 0]), ("required", 4, [0, 1, 0, 0])]
    {
        let yaml = yaml.replace("source: {path: src}", &source);
        scene.write("case.yaml", &format!("{yaml}availability: {availability}\n"));
        let end = scene.run(&[]);
        assert_eq!((end.code, end.cells()), (Some(code), cells), "{}", end.stderr);
        let result = scene.result(&end, "nop", 1);
        let reason = [&result["skipped_reason"], &result["error"]["message"]];
        let said = reason
            .iter()
            .any(|text| text.as_str().is_some_and(|text| text.contains("cannot be reached")));
        assert!(said, "{result}");
    }
}
