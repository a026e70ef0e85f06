//! Batches, from the request to the figures.

use serde_json::{Value, json};

use crate::agents::serve_wheel;
use crate::scene::{EvaluationScene, PATIENCE, WANTS_DONE};
use cofferdam_test_server::service::wait_until;

#[test]
fn a_batch_evaluates_each_agent_on_each_task_with_what_both_install() {
    let scene = EvaluationScene::with(&[
        ("EVAL_INSTALL_HOSTS", "127.0.0.1:*"),
        ("EVAL_INSTALL_ENV", "PIP_NO_INDEX=1"),
    ]);
    let installs =
        "files: files\ninstall:\n  - mkdir -p /deps/bin; cp /bin/true /deps/bin/needed\n";
    let mut files = WANTS_DONE;
    (files[0].1, files[3].1) = (installs, "needed && test -e done");
    let urls = [scene.serve(&WANTS_DONE), scene.serve(&files)];
    let wheel = serve_wheel(&scene);
    let batch = json!({
        "tasks": [{"task_url": urls[0]}, {"task_url": urls[1]}],
        "agents": [
            {"name": "helped", "agent_code": "helper && touch done", "agent_language": "sh",
             "agent_install": [format!("pip install {wheel}")]},
            {"name": "alone", "agent_code": "helper && touch done", "agent_language": "sh"},
        ],
    });
    let accepted = scene.ask("POST", "/evaluations/batch", &batch.to_string());
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let accepted: Value = serde_json::from_str(&accepted.body).unwrap();
    assert_eq!(accepted["eval_ids"].as_array().unwrap().len(), 4);
    let target = format!("/evaluations/batch/{}", accepted["batch_id"].as_str().unwrap());
    let mut batch = Value::Null;
    wait_until("the end of a batch", PATIENCE, || {
        batch = serde_json::from_str(&scene.ask("GET", &target, "").body).unwrap();
        batch["status"] == "done"
    });
    assert_eq!(batch["total"], 4, "{batch:#}");
    assert_eq!(batch["resolved_rate"], 0.5, "{batch:#}");
    assert_eq!(batch["agents"]["helped"]["resolved_rate"], 1.0, "{batch:#}");
    assert_eq!(batch["agents"]["alone"]["resolved_rate"], 0.0, "{batch:#}");
    for url in &urls {
        assert_eq!(batch["tasks"][url]["resolved_rate"], 0.5, "{batch:#}");
        assert_eq!(batch["tasks"][url]["flaky"], false, "{batch:#}");
    }
    scene.wait_for_no_leftovers();
}
