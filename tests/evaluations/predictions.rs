//! `cofferdam evaluate` of predictions, and of a URL.

use serde_json::json;

use crate::scene::Scene;

const IDS: &str = r#"{"instance_id": "a__b-1", "report": "r.xml", "fail_to_pass": ["t.py::t"], "pass_to_pass": []}"#;

#[test]
fn an_empty_prediction_is_reported_and_a_task_without_one_is_incomplete() {
    let other = IDS.replace("b-1", "b-2");
    let scene = Scene::new(&[("swebench.json", IDS), ("more/swebench.json", &other)]);
    let predictions = scene.write(
        "predictions.jsonl",
        "{\"instance_id\": \"a__b-1\", \"model_name_or_path\": \"m\", \"model_patch\": \"\"}\n",
    );
    let graded = scene.evaluate(&["--predictions", &predictions]);
    assert_eq!(graded.code, 1, "{graded:?}");
    let report = graded.json();
    assert_eq!(report["empty_patch_ids"], json!(["a__b-1"]));
    assert_eq!(report["incomplete_ids"], json!(["a__b-2"]));
    assert_eq!((&report["total_instances"], &report["schema_version"]), (&json!(2), &json!(2)));

    let unknown =
        scene.write("unknown.jsonl", "{\"instance_id\": \"c\", \"model_patch\": \"x\"}\n");
    let refused = scene.evaluate(&["--predictions", &unknown]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("line 1: no task has the instance_id"), "{refused:?}");
}

#[test]
fn a_url_to_an_address_that_is_not_public_is_denied_and_a_wrong_scheme_is_usage() {
    let scene = Scene::new(&[]);
    let denied = scene.evaluate_task("http://127.0.0.1:9/task.tar.gz", &["--nop", "--json"]);
    assert_eq!(denied.code, 4, "{denied:?}");
    assert_eq!(denied.json()["failure"]["code"], "task.url_denied");
    let refused = scene.evaluate_task("ftp://127.0.0.1/task.tar.gz", &["--nop"]);
    assert_eq!(refused.code, 2, "{refused:?}");
}
