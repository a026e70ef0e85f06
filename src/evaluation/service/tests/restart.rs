//! What a killed service leaves.

use std::fs;

use super::scene::{Scene, batch, lines, request};
use crate::evaluation::result::EvaluationVerdict::Resolved;
use crate::evaluation::service::*;

#[test]
fn a_killed_service_leaves_ended_results_as_they_were() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    scene.begun().end(Resolved);
    scene.idle();
    let before = scene.service().view("o", &id).unwrap();
    let all = lines(&mut scene.service().events("o", &id).unwrap());
    let again = scene.after_kill(1);
    assert_eq!(again.service().view("o", &id).unwrap(), before);
    assert_eq!(lines(&mut again.service().events("o", &id).unwrap()), all);
    assert_eq!(again.service().patch("o", &id).unwrap(), b"diff --git");
}

#[test]
fn what_ran_at_a_kill_is_interrupted_and_its_events_end() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    scene.begun();
    let again = scene.after_kill(1);
    let result = again.view(&id);
    assert_eq!((&result["verdict"], &result["passed"]), (&"infra_error".into(), &().into()));
    assert_eq!(result["failure"]["code"], "evaluation.interrupted");
    assert_eq!(result["step"], "running_agent");
    let all = lines(&mut again.service().events("o", &id).unwrap());
    let kinds: Vec<_> = all.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step", "result"]);
    assert_eq!(all[1]["data"], result);
}

#[test]
fn items_that_wait_go_on_after_a_kill_and_what_ran_runs_once_more() {
    let scene = Scene::new(1);
    let sent = scene.service().submit_batch("o", batch(2, &["a"], 1), None).unwrap();
    let ran = scene.begun().id;
    let again = scene.after_kill(1);
    assert_eq!(again.view(&ran)["failure"]["code"], "evaluation.interrupted");
    let waited = again.begun();
    assert_eq!(waited.id, sent.eval_ids[1]);
    waited.end(Resolved);
    let second = again.begun();
    assert!(!sent.eval_ids.contains(&second.id));
    assert_eq!(again.batch(&sent.batch_id)["total"], 3);
    // The second run is not run again.
    let last = again.after_kill(1);
    assert_eq!(last.view(&second.id)["failure"]["code"], "evaluation.interrupted");
    let sum = last.batch(&sent.batch_id);
    assert_eq!((&sum["status"], &sum["total"]), (&"done".into(), &3.into()));
    assert_eq!(sum["verdicts"], serde_json::json!({"infra_error": 2, "resolved": 1}));
}

#[test]
fn an_item_whose_variables_are_gone_is_not_run_again_without_them() {
    let scene = Scene::new(1);
    let mut asked = batch(1, &["a"], 1);
    asked.agents[0].agent_env.insert("KEY".to_owned(), "very-secret".to_owned());
    let sent = scene.service().submit_batch("o", asked, None).unwrap();
    scene.begun();
    let again = scene.after_kill(1);
    let sum = again.batch(&sent.batch_id);
    assert_eq!((&sum["status"], &sum["total"]), (&"done".into(), &1.into()));
}

#[test]
fn an_end_that_was_half_written_is_completed() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    let begun = scene.begun();
    let record = fs::read(scene.record(&id).join("record.json")).unwrap();
    begun.end(Resolved);
    scene.idle();
    let result = scene.service().view("o", &id).unwrap();
    // As if it was killed after the result, in the midst of the last event.
    fs::write(scene.record(&id).join("record.json"), record).unwrap();
    let events = fs::read(scene.record(&id).join("events.jsonl")).unwrap();
    fs::write(scene.record(&id).join("events.jsonl"), &events[..events.len() - 9]).unwrap();
    let again = scene.after_kill(1);
    assert_eq!(again.service().view("o", &id).unwrap(), result);
    assert_eq!(fs::read(again.record(&id).join("events.jsonl")).unwrap(), events);
}

#[test]
fn a_damaged_record_is_set_aside_and_the_others_stay() {
    let scene = Scene::new(1);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(scene.service().submit("o", request(), None).unwrap());
        scene.begun().end(Resolved);
        scene.idle();
    }
    let sent = scene.service().submit_batch("o", batch(1, &["a"], 1), None).unwrap();
    scene.begun().end(Resolved);
    scene.idle();
    fs::write(scene.record(&ids[0]).join("record.json"), "{\"eval").unwrap();
    fs::write(scene.record(&ids[1]).join("record.json"), "").unwrap();
    let result = scene.record(&ids[2]).join("result.json");
    fs::write(&result, &fs::read(&result).unwrap()[..500]).unwrap();
    fs::rename(scene.record(&ids[3]), scene.record("not-an-id")).unwrap();
    fs::write(scene.record(&sent.eval_ids[0]).join("record.json"), [0xFF; 9]).unwrap();
    fs::create_dir_all(scene.record("batches").join("broken")).unwrap();
    fs::create_dir_all(scene.record(".new-left")).unwrap();
    fs::write(scene.record("file"), "").unwrap();
    let again = scene.after_kill(1);
    for id in &ids[..4] {
        assert_eq!(again.service().view("o", id), Err(EvaluationsError::NotFound));
    }
    assert_eq!(again.view(&ids[4])["verdict"], "resolved");
    assert_eq!(again.view(&sent.eval_ids[0])["failure"]["code"], "evaluation.interrupted");
    assert!(again.begun.try_recv().is_err(), "the item is not run again");
    let aside = fs::read_dir(again.record("quarantine")).unwrap().count();
    assert_eq!(aside, 7);
    assert!(!again.record(".new-left").exists());
}

#[test]
fn a_second_service_over_the_same_store_is_refused() {
    let scene = Scene::new(1);
    let opened = EvaluationService::open(scene.settings.clone(), scene.evaluator.clone());
    assert!(matches!(opened, Err(crate::store::StoreError::Owned { .. })));
}

#[test]
fn a_service_that_ends_keeps_the_items_that_wait_for_the_next() {
    let mut scene = Scene::new(1);
    let sent = scene.service().submit_batch("o", batch(2, &["a"], 1), None).unwrap();
    scene.begun();
    drop(scene.service.take());
    let next = Scene::over(scene.place, 1);
    assert_eq!(next.view(&sent.eval_ids[0])["verdict"], "cancelled");
    assert_eq!(next.begun().id, sent.eval_ids[1]);
}

#[test]
fn what_is_set_aside_is_bounded_and_the_oldest_goes() {
    let mut scene = Scene::new(1);
    drop(scene.service.take());
    let quarantine = scene.record("quarantine");
    let unique = "0".repeat(32);
    for index in 0..1000 {
        fs::write(quarantine.join(format!("new{index}-2026-02-28T23:59:59.007Z-{unique}")), "")
            .unwrap();
    }
    fs::write(quarantine.join(format!("z-2025-02-28T23:59:59.007Z-{unique}")), "").unwrap();
    let next = Scene::over(scene.place, 1);
    let left: Vec<_> = fs::read_dir(next.record("quarantine")).unwrap().collect();
    assert_eq!(left.len(), 1000);
    assert!(
        !next.record("quarantine").join(format!("z-2025-02-28T23:59:59.007Z-{unique}")).exists()
    );
}
