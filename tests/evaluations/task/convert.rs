//! `cofferdam task convert`: what is written, and what is refused by its place.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tasks::{check, directory, task};

fn instance() -> Value {
    json!({
        "instance_id": "psf__requests-1",
        "repo": "psf/requests",
        "base_commit": "0123456789abcdef0123456789abcdef01234567",
        "patch": "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n",
        "test_patch": "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1 +1 @@\n-a\n+b\n",
        "problem_statement": "It is \"wrong\".\n",
        "version": "2.31",
        "FAIL_TO_PASS": "[\"tests/test_a.py::test_x\", \"tests/test_a.py::test_y[a\"]",
        "PASS_TO_PASS": ["tests/test b.py::T::test_z"],
    })
}

#[test]
fn an_instance_of_swebench_becomes_a_task_that_is_clean() {
    let place = directory(&[("instance.json", &instance().to_string())]);
    let (file, out) = (place.path().join("instance.json"), place.path().join("out"));
    let (file, out_text) = (file.to_str().unwrap(), out.to_str().unwrap());
    let options = ["--install", "pip install -e .", "--pre-test", "make", "--out", out_text];
    let output = task(&[&["convert", "swebench", file][..], &options].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(
        read("workspace.yaml"),
        "repo: \"https://github.com/psf/requests\"\n\
         base_commit: \"0123456789abcdef0123456789abcdef01234567\"\nlanguage: python\n\
         install:\n  - \"pip install -e .\"\nverify:\n  restore:\n    - \"tests/test_a.py\"\n"
    );
    assert_eq!(read("prompt.md"), "It is \"wrong\".\n");
    assert_eq!(read("solution.patch"), instance()["patch"].as_str().unwrap());
    let script = read("tests/run_ids.sh");
    let last = script.lines().last().unwrap();
    assert_eq!(
        last,
        "python3 -m pytest -rA --junitxml=/tmp/cofferdam-junit.xml 'tests/test b.py' tests/test_a.py"
    );
    assert!(script.contains("\nmake\n"), "{script}");
    let ids: Value = serde_json::from_str(&read("swebench.json")).unwrap();
    assert_eq!(ids["fail_to_pass"][1], "tests/test_a.py::test_y[a");
    assert_eq!(check(&out), (0, Vec::new()));
    // It is not written over.
    let again = task(&["convert", "swebench", file, "--out", out_text]);
    assert_eq!(again.status.code(), Some(2));
}

#[test]
fn an_instance_that_cannot_be_converted_is_refused_by_its_field() {
    for (key, value, words) in [
        ("base_commit", Value::Null, "base_commit"),
        ("FAIL_TO_PASS", json!(["test_x (app.Tests)"]), "FAIL_TO_PASS[0]"),
        ("PASS_TO_PASS", json!(["../x.py::a"]), "PASS_TO_PASS[0]"),
        ("FAIL_TO_PASS", json!("no list"), "FAIL_TO_PASS"),
    ] {
        let mut instance = instance();
        match value {
            Value::Null => drop(instance.as_object_mut().unwrap().remove(key)),
            value => instance[key] = value,
        }
        let place = directory(&[("instance.json", &instance.to_string())]);
        let file = place.path().join("instance.json");
        let out = place.path().join("out");
        let output =
            task(&["convert", "swebench", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words) || key == "FAIL_TO_PASS", "{stderr}");
        assert!(!out.exists(), "{words}");
    }
}

const HARBOR: [(&str, &str); 5] = [
    ("task.toml", "version = \"1.0\"\n[verifier]\ntimeout_sec = 60.0\n"),
    ("instruction.md", "Do it.\n"),
    ("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n"),
    ("solution/solve.sh", "touch done\n"),
    ("environment/data/a.txt", "a\n"),
];

fn harbor(dockerfile: &str) -> TempDir {
    let task = directory(&HARBOR);
    fs::write(task.path().join("environment/Dockerfile"), dockerfile).unwrap();
    task
}

#[test]
fn a_harbor_task_keeps_directory_variables_and_files() {
    let harbor = harbor("FROM python:3.12\nENV LEVEL=\"a b\"\nWORKDIR /app\nCOPY data ./data\n");
    assert_eq!(check(harbor.path()), (0, Vec::new()));
    let place = TempDir::new().unwrap();
    let out = place.path().join("out");
    let path = harbor.path().to_str().unwrap();
    let output = task(&["convert", "harbor", path, "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(
        read("workspace.yaml"),
        "files: files\nworkdir: \"/app\"\nenv:\n  \"LEVEL\": \"a b\"\n"
    );
    assert_eq!(read("files/data/a.txt"), "a\n");
    assert_eq!(read("prompt.md"), "Do it.\n");
    assert_eq!(read("solution/solve.sh"), "touch done\n");
    assert_eq!(check(&out), (0, Vec::new()));
}

#[test]
fn a_harbor_task_with_commands_is_refused_by_the_line() {
    for (dockerfile, words) in [
        ("FROM a\nWORKDIR /app\nRUN make\n", "environment/Dockerfile:3: RUN"),
        ("FROM a\nWORKDIR /x\nWORKDIR /usr/src\n", "environment/Dockerfile:3: WORKDIR /usr/src"),
        ("FROM a\nCOPY data /elsewhere\n", "environment/Dockerfile:2: COPY"),
        ("FROM a\nWORKDIR /app\nCOPY absent .\n", "environment/Dockerfile:3: there is no absent"),
    ] {
        let harbor = harbor(dockerfile);
        let place = TempDir::new().unwrap();
        let out = place.path().join("out");
        let path = harbor.path().to_str().unwrap();
        let output = task(&["convert", "harbor", path, "--out", out.to_str().unwrap()]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
        assert!(!out.exists(), "{words}");
    }
    let harbor = harbor("FROM a\n");
    fs::write(harbor.path().join("environment/docker-compose.yaml"), "services: {}\n").unwrap();
    let (code, findings) = check(harbor.path());
    assert_eq!(code, 1);
    assert_eq!(findings[0]["file"], "environment/docker-compose.yaml");
    assert_eq!(findings[0]["line"], 1);
}
