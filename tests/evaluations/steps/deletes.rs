//! A DELETE in the steps whose work the service does itself, on a task with many files.

use std::time::{Duration, Instant};

use cofferdam_test_server::evaluations::{EvaluationScene, shell_agent, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Files of the repository, and as many of the tests and of the agent.
const FILES: usize = 4000;
/// What the contract gives a DELETE.
const END_TIME: Duration = Duration::from_secs(1);

fn serve_large_task(scene: &EvaluationScene) -> String {
    let task = TempDir::new().unwrap();
    write(
        task.path(),
        &[
            ("workspace.yaml", "files: files\n"),
            ("prompt.md", ""),
            ("tests/fail_to_pass_1.sh", "test -e many/1\n"),
        ],
    );
    for number in 0..FILES {
        let names = ["files/d", "tests/data"].map(|top| format!("{top}/{}/{number}", number % 20));
        write(task.path(), &names.each_ref().map(|name| (name.as_str(), "x\n")));
    }
    scene.pack("large.tar", task.path(), &[])
}

/// How long `step` took.
fn duration_of(result: &Value, step: &str) -> Duration {
    let phases = result["phases"].as_array().unwrap();
    let phase = phases.iter().find(|phase| phase["step"] == step).unwrap();
    Duration::from_millis(phase["duration_ms"].as_u64().unwrap())
}

#[test]
fn a_delete_ends_an_evaluation_in_the_middle_of_any_step_that_handles_many_files() {
    let scene = EvaluationScene::new();
    let url = serve_large_task(&scene);
    let agent = format!("mkdir many; cd many; seq 1 {FILES} | xargs touch; rm -r ../d/1");
    let mut body = shell_agent(&url, &agent);
    body["fresh"] = json!(true);
    let whole = scene.evaluate(&body);
    assert_eq!(whole["verdict"], "resolved", "{whole:#}");
    // Unpacking; the copy of `files`; comparison, patch, restoring and the copies of tests.
    for (step, parts) in [
        ("downloading_task", &[0.0, 0.6][..]),
        ("installing_deps", &[0.2]),
        ("running_tests", &[0.0, 0.3, 0.6]),
    ] {
        let alone = duration_of(&whole, step);
        for part in parts {
            let id = scene.begin(&body);
            scene.wait(&id, |result| result["step"] == step);
            // No state shows how far it is.
            std::thread::sleep(alone.mul_f64(*part));
            let began = Instant::now();
            let answer = scene.ask("DELETE", &format!("/evaluate/{id}"), "");
            let result = scene.end(&id);
            let took = began.elapsed();
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
            // On a slow machine the bound stays below the rest of the step: to wait for its end is not to stop it.
            let limit = END_TIME.max(alone.mul_f64((1.0 - part) / 2.0));
            assert!(took < limit, "{step} {part}: {took:?} of {alone:?}");
            if answer.status == 202 {
                assert_eq!(result["verdict"], "cancelled", "{step} {part}: {result:#}");
            }
        }
    }
    // What was not removed before the end is removed right after it.
    scene.wait_for_no_leftovers();
}
