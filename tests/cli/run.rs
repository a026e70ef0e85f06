//! `cofferdam run`: one check without a server.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Call, cofferdam, has_keys_in_order, langs};

/// A directory with these files in it.
fn files(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// A workspace that runs `recipe`.
fn workspace(recipe: &str) -> TempDir {
    let directory =
        files(&[("Makefile", &format!("test:\n\t@{recipe}\n")), ("solution", "text\n")]);
    std::fs::create_dir(directory.path().join("check")).unwrap();
    directory
}

/// `run` in `workspace`, which also contains the solution.
fn run_in(workspace: &TempDir) -> Call {
    cofferdam("run --lang python --workspace . solution").within(workspace.path())
}

fn run_shipped(slug: &str, within: &Path) -> Call {
    cofferdam("run --lang").arg(slug).arg("--langs").arg(langs()).within(within)
}

const ASSERTS: (&str, &str) = ("asserts.json", r#"{"arguments":[[1,2],[40,2]]}"#);

#[test]
fn a_correct_solution_prints_the_results_of_its_harness() {
    for (slug, solution) in [
        ("python", "def solution(a, b):\n    return a + b\n"),
        ("js", "module.exports = (a, b) => a + b;\n"),
    ] {
        let directory = files(&[("s", solution), ASSERTS]);
        let done =
            run_shipped(slug, directory.path()).words("--asserts asserts.json s").run().exits(0);
        let items: Value = serde_json::from_str(&done.stdout()).unwrap();
        assert_eq!(
            (&items[0]["value"], &items[1]["value"]),
            (&Value::from(3), &Value::from(42)),
            "{slug}"
        );
    }
}

#[test]
fn a_syntax_error_is_an_item_of_the_output() {
    for (slug, solution) in [("python", "def solution(:\n"), ("js", "module.exports = (((\n")] {
        let directory = files(&[("s", solution), ASSERTS]);
        let done =
            run_shipped(slug, directory.path()).words("--asserts asserts.json s").run().exits(0);
        let items: Value = serde_json::from_str(&done.stdout()).unwrap();
        assert_eq!(items[0]["type"], "error", "{slug}: {items}");
    }
}

#[test]
fn output_and_exit_code_are_those_of_the_program() {
    let workspace = workspace("cat check/solution.py; echo err >&2; exit 3");
    let done = run_in(&workspace).run().exits(3).prints("text\n");
    done.holds(done.stderr() == "err\n", "its stderr");
}

#[test]
fn outcomes_have_the_exit_codes_of_exec() {
    run_in(&workspace("sleep 50")).words("--timeout 200ms").run().exits(124);
    let loud = workspace("echo 01234567890");
    run_in(&loud).env("RUN_OUTPUT_MAX", "10").run().exits(123).prints("0123456789");
    run_in(&workspace("kill -9 $$$$")).run().exits(137);
}

#[test]
fn json_is_the_response_of_the_service_and_the_report() {
    let done =
        run_in(&workspace("echo hi; echo err >&2; exit 3")).arg("--json").run().exits(3).quietly();
    let text = done.stdout();
    done.holds(
        text.starts_with(r#"{"exit_code":3,"stdout":"hi\n","stderr":"err\n","outcome":"exited","#),
        "the response first",
    );
    has_keys_in_order(
        &text,
        &[
            "exit_code",
            "stdout",
            "stderr",
            "outcome",
            "signal",
            "limit",
            "usage",
            "enforced",
            "not_enforced",
        ],
    );
    let object: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object.as_object().unwrap().len(), 9);

    let done =
        run_in(&workspace("echo early; sleep 50")).words("--json --timeout 300ms").run().exits(124);
    let object: Value = serde_json::from_str(&done.stdout()).unwrap();
    assert_eq!(object["exit_code"], Value::Null);
    assert_eq!(object["stdout"], "early\n");
    assert_eq!(object["outcome"], "timed_out");
    assert_eq!(object["limit"], "wall_time");
}

#[test]
fn a_solution_can_be_read_from_stdin() {
    let workspace = workspace("cat check/solution.py");
    let call = || cofferdam("run --lang python --workspace . -").within(workspace.path());
    call().fed("from stdin\n").run().exits(0).prints("from stdin\n");
    call()
        .fed("x".repeat(11))
        .env("RUN_INPUT_MAX", "10")
        .run()
        .exits(2)
        .complains("FILE: -: more than RUN_INPUT_MAX");
    call().fed(*b"\xFF").run().exits(2).complains("FILE: -: not UTF-8");
}

#[test]
fn a_usage_error_gives_its_reason() {
    let directory = files(&[("s", "text")]);
    let call = |slug| run_shipped(slug, directory.path()).arg("s");
    call("cobol").run().exits(2).complains("--lang: \"cobol\" is not supported");
    call("Python").run().exits(2).complains("--lang");
    call("cpp").run().exits(2).complains("--checker: cpp requires a checker");
    let empty = files(&[("s", "text")]);
    let call = cofferdam("run --lang python --workspace . s").within(empty.path());
    call.run().exits(2).complains("name the languages' workspaces with --langs DIR");
}

#[test]
fn a_workspace_is_chosen_by_the_four_rules() {
    let one = workspace("echo one");
    let langs = tempfile::tempdir().unwrap();
    std::fs::create_dir(langs.path().join("langs")).unwrap();
    let inner = workspace("echo two");
    std::fs::rename(inner.path(), langs.path().join("langs/python")).unwrap();
    std::fs::write(langs.path().join("solution"), "text").unwrap();
    let call = |within: &TempDir| cofferdam("run --lang python solution").within(within.path());
    call(&one).run().exits(0).prints("one\n");
    call(&langs).run().exits(0).prints("two\n");
    call(&one)
        .env("LANGS_DIR", langs.path().join("langs").to_str().unwrap())
        .run()
        .exits(0)
        .prints("two\n");
    call(&langs).env("RUN_WORKSPACE", one.path().to_str().unwrap()).run().exits(0).prints("one\n");
    let asked = call(&langs).arg("--workspace").arg(one.path());
    asked.env("LANGS_DIR", "/no/such/dir").run().exits(0).prints("one\n");
    let solution = "def solution():\n    return 7\n";
    let nothing = files(&[("solution", solution), ("asserts", "{\"arguments\":[[]]}")]);
    let done = call(&nothing).arg("--asserts").arg("asserts").run().exits(0);
    assert!(done.stdout().contains("\"value\": 7"), "{}", done.stdout());
}
