//! `cofferdam case validate`: the report, the exit code, and the limits of the file.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// What each file needs, for tests of the rest.
pub const HEAD: &str = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";

/// A directory with `case.yaml`.
pub fn case(yaml: impl AsRef<[u8]>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("case.yaml"), yaml).unwrap();
    directory
}

/// The exit code and the report about the Case at `path`.
pub fn validate(path: &Path) -> (i32, Value) {
    let binary =
        env::var_os("COFFERDAM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into());
    let output = Command::new(binary).args(["case", "validate"]).arg(path).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), report)
}

/// The path and the code of each error of a file that is refused.
pub fn errors(path: &Path) -> Vec<(String, String)> {
    let (code, report) = validate(path);
    assert_eq!((code, &report["valid"]), (2, &json!(false)), "{report}");
    findings(&report["errors"])
}

/// The path and the code of each.
pub fn findings(list: &Value) -> Vec<(String, String)> {
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let each = list.as_array().unwrap().iter();
    each.map(|finding| {
        assert!(!word(finding, "message").is_empty());
        (word(finding, "path"), word(finding, "code"))
    })
    .collect()
}

#[test]
fn a_file_or_its_directory_is_taken_and_its_cells_are_counted() {
    let yaml = "id: fix-add
task: {prompt: P, system_prompt: null}
harnesses: {mine: {kind: command, argv: [agent, '{prompt_file}']}}
matrix: {harnesses: [nop, mine], models: [m, n], trials: 3}
";
    let here = case(yaml);
    let wanted = json!({"valid": true, "cells": 12, "warnings": []});
    assert_eq!(validate(here.path()), (0, wanted.clone()));
    assert_eq!(validate(&here.path().join("case.yaml")), (0, wanted));
    let entries =
        "matrix: {entries: [{harness: nop, models: [a, b]}, {harness: nop, models: [b]}]}";
    let here = case(HEAD.replace("matrix: {harnesses: [nop], models: [m]}", entries));
    assert_eq!(validate(here.path()).1["cells"], 2);
}

#[test]
fn every_key_of_the_contract_is_taken() {
    let here = case(include_str!("whole.yaml"));
    fs::create_dir_all(here.path().join("src/want")).unwrap();
    fs::create_dir(here.path().join("hidden")).unwrap();
    for name in ["fix.patch", "notes.md", "requirements.txt", "hidden/test_a.py"] {
        fs::write(here.path().join(name), "").unwrap();
    }
    let (code, report) = validate(here.path());
    assert_eq!((code, &report["cells"]), (0, &json!(12)), "{report}");
    let wanted = [
        ("environment.share", "no_effect"),
        ("graders[1]", "console_counts"),
        ("graders[6].type", "unsupported_grader"),
    ];
    assert_eq!(
        findings(&report["warnings"]),
        wanted.map(|(path, code)| (path.into(), code.into()))
    );
}

#[test]
fn an_unknown_key_has_the_known_one_that_it_resembles() {
    let job = "harnesses: {j: {kind: job, command: {argv: [a], agrv: b}}}";
    let here = case(format!("{HEAD}environment: {{requirments: []}}\nzzz: 1\n{job}\n"));
    let (_, report) = validate(here.path());
    let wanted = json!([
        {"path": "environment.requirments", "code": "unknown_key",
         "message": "unknown key 'requirments'; did you mean 'requirements'?"},
        {"path": "zzz", "code": "unknown_key", "message": "unknown key 'zzz'"},
        {"path": "harnesses.j.command.agrv", "code": "unknown_key",
         "message": "unknown key 'agrv'; did you mean 'argv'?"},
    ]);
    assert_eq!(report["errors"], wanted);
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_file() {
    let yaml = "graders: [{type: command}]
id: [1]
expect: {pass_threshold: 1.1}
matrix: {harnesses: [ghost], models: []}
";
    let wanted = [
        ("task.prompt", "missing"),
        ("graders[0].cmd", "missing"),
        ("id", "wrong_type"),
        ("expect.pass_threshold", "invalid_value"),
        ("matrix.harnesses[0]", "not_found"),
        ("matrix.models", "invalid_value"),
    ];
    assert_eq!(errors(case(yaml).path()), wanted.map(|(path, code)| (path.into(), code.into())));
}

#[test]
fn what_is_no_case_file_is_one_error_of_the_file() {
    let deep = format!("x: {}{}", "[".repeat(100), "]".repeat(100));
    let wide = format!("x: [{}]", "a,".repeat(100_001));
    let long = format!("{HEAD}description: {}", "x".repeat(1 << 20));
    let level = |number: usize| {
        let repeated = vec![format!("*a{number}"); 9].join(",");
        format!("a{}: &a{} [{repeated}]\n", number + 1, number + 1)
    };
    let bomb = format!("a0: &a0 [x]\n{}", (0..9).map(level).collect::<String>());
    let files: [(&[u8], &str); 10] = [
        (b"id: [a", "syntax"),
        (b"a: *b", "syntax"),
        (b"id: !!python/object:os.system x", "syntax"),
        (b"id: \xff", "syntax"),
        (b"- a", "wrong_type"),
        (b"", "wrong_type"),
        (deep.as_bytes(), "too_large"),
        (wide.as_bytes(), "too_large"),
        (long.as_bytes(), "too_large"),
        (bomb.as_bytes(), "too_large"),
    ];
    for (bytes, code) in files {
        let shown = String::from_utf8_lossy(bytes.get(..bytes.len().min(60)).unwrap()).into_owned();
        assert_eq!(errors(case(bytes).path()), [(String::new(), code.to_owned())], "{shown}");
    }
    let here = tempfile::tempdir().unwrap();
    assert_eq!(errors(here.path()), [(String::new(), "not_found".to_owned())]);
}

#[test]
fn yaml_is_that_of_the_core_schema() {
    for (value, code) in [
        ("yes", Some("wrong_type")),
        ("true", None),
        ("TRUE", None),
        ("'true'", Some("wrong_type")),
    ] {
        let here = case(format!("{HEAD}environment: {{venv: {value}}}\n"));
        let (_, report) = validate(here.path());
        assert_eq!(report["errors"][0]["code"].as_str(), code, "{value}: {report}");
    }
    let merged =
        "x: &x {prompt: p}\nid: a\ntask: {<<: *x}\nmatrix: {harnesses: [nop], models: [m]}\n";
    assert!(
        errors(case(merged).path()).contains(&("task.<<".to_owned(), "unknown_key".to_owned()))
    );
}

#[test]
fn links_may_not_leave_the_directory_of_the_case() {
    let here = case(format!(
        "{HEAD}graders: [{{type: pytest, inject: [inside, outside, gone]}}]\nsource: {{path: away}}\n"
    ));
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file"), "").unwrap();
    fs::write(elsewhere.path().join("file"), "").unwrap();
    symlink("file", here.path().join("inside")).unwrap();
    symlink(elsewhere.path().join("file"), here.path().join("outside")).unwrap();
    symlink("nowhere", here.path().join("gone")).unwrap();
    // The source is its author's own choice.
    symlink(elsewhere.path(), here.path().join("away")).unwrap();
    let wanted = [("graders[0].inject[1]", "unsafe_path"), ("graders[0].inject[2]", "not_found")];
    assert_eq!(errors(here.path()), wanted.map(|(path, code)| (path.into(), code.into())));
}

#[test]
fn the_example_cases_lack_only_what_is_fetched() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cases");
    let mut found = 0;
    for example in fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()) {
        if !example.is_dir() {
            continue;
        }
        let here = tempfile::tempdir().unwrap();
        for file in fs::read_dir(&example).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                fs::copy(&file, here.path().join(file.file_name().unwrap())).unwrap();
            }
        }
        // What fetch.sh makes.
        fs::create_dir(here.path().join("repository")).unwrap();
        for fetched in ["solution.patch", "zeros_test.go"] {
            fs::write(here.path().join(fetched), "").unwrap();
        }
        let (code, report) = validate(here.path());
        assert_eq!((code, &report["cells"]), (0, &json!(2)), "{}: {report}", example.display());
        found += 1;
    }
    assert_eq!(found, 3);
}
