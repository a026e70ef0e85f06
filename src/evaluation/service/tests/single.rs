//! Evaluations without a batch.

use super::scene::{Order, Scene, WAIT, lines, request};
use crate::evaluation::result::EvaluationVerdict::{Resolved, Unresolved};
use crate::evaluation::result::{EvaluationStatus, EvaluationStep};
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::EventLog;
use crate::evaluation::service::*;
use cofferdam_core::job::{Idempotency, Sha256};

fn key(key: &str, body: u8) -> Option<Idempotency> {
    let digest = format!("{body:02x}").repeat(32);
    Some(Idempotency { key: key.to_owned(), body: Sha256::parse(&digest).unwrap() })
}

#[test]
fn an_evaluation_runs_at_once_and_its_result_patch_junit_and_events_stay() {
    let scene = Scene::new(2);
    let id = scene.service().submit("o", request(), None).unwrap();
    let begun = scene.begun();
    assert_eq!(begun.id, id);
    let live = scene.view(&id);
    assert_eq!((&live["status"], &live["step"]), (&"running".into(), &"running_agent".into()));
    assert_eq!((&live["verdict"], &live["labels"]["k"]), (&().into(), &"v".into()));
    assert_eq!(live.as_object().unwrap().len(), 26, "every key");
    assert!(matches!(scene.service().patch("o", &id), Err(EvaluationsError::Conflict(_))));
    assert!(matches!(scene.service().junit("o", &id), Err(EvaluationsError::Conflict(_))));
    let mut events = scene.service().events("o", &id).unwrap();
    begun.orders.send(Order::Output("hello".to_owned())).unwrap();
    begun.end(Resolved);
    scene.idle();
    assert!(events.progress.has_changed().is_err() && events.progress.borrow().ended);
    let all = lines(&mut events);
    let kinds: Vec<_> = all.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step", "output", "test", "result"]);
    let ids: Vec<_> = all.iter().map(|line| line["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    let result = scene.view(&id);
    assert_eq!(all[3]["data"], result);
    assert_eq!((&result["verdict"], &result["step"]), (&"resolved".into(), &"done".into()));
    assert_eq!(scene.service().patch("o", &id).unwrap(), b"diff --git");
    let junit = scene.service().junit("o", &id).unwrap();
    assert!(junit.contains("fail_to_pass_1.sh") && junit.contains("fine &lt;&amp;&gt;"), "{junit}");
    let counts = scene.service().counts();
    assert_eq!((counts.passed, counts.active, counts.duration_ms_sum), (1, 0, 7));
}

#[test]
fn an_evaluation_beyond_the_slots_is_refused_not_queued() {
    let scene = Scene::new(2);
    scene.service().submit("o", request(), None).unwrap();
    scene.service().submit("o", request(), None).unwrap();
    let refused = scene.service().submit("o", request(), None).unwrap_err();
    assert!(
        matches!(refused, EvaluationsError::AtCapacity { capacity: 2, retry_after } if !retry_after.is_zero())
    );
    scene.begun().end(Unresolved);
    scene.begun().end(Unresolved);
    scene.idle();
    scene.service().submit("o", request(), None).unwrap();
    assert_eq!(scene.service().counts().failed, 2);
}

#[test]
fn a_panic_of_the_evaluator_frees_the_slot_and_is_an_infra_error() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    scene.begun().orders.send(Order::Panic).unwrap();
    scene.idle();
    let result = scene.view(&id);
    assert_eq!((&result["verdict"], &result["passed"]), (&"infra_error".into(), &().into()));
    assert_eq!(result["failure"]["code"], "sandbox.failed");
    scene.service().submit("o", request(), None).unwrap();
}

#[test]
fn the_same_key_gives_the_same_evaluation_also_after_a_restart_and_another_body_is_a_conflict() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), key("k", 1)).unwrap();
    for scene in [&scene, &scene.after_kill(1)] {
        assert_eq!(scene.service().submit("o", request(), key("k", 1)), Ok(id.clone()));
        let other = scene.service().submit("o", request(), key("k", 2));
        assert_eq!(other, Err(EvaluationsError::IdempotencyConflict));
    }
    let of_other = scene.service().submit("p", request(), key("k", 2));
    assert!(matches!(of_other, Err(EvaluationsError::AtCapacity { .. })), "{of_other:?}");
}

#[test]
fn what_the_host_cannot_serve_is_refused_before_a_slot_is_looked_for() {
    let scene = Scene::new(0);
    *scene.evaluator.refusal.lock().unwrap() = Some(EvaluationsError::invalid("rootfs", "no"));
    let refused = scene.service().submit("o", request(), None);
    assert_eq!(refused, Err(EvaluationsError::invalid("rootfs", "no")));
}

#[test]
fn an_evaluation_of_another_token_is_not_found_and_in_no_list() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    let service = scene.service();
    assert_eq!(service.view("p", &id), Err(EvaluationsError::NotFound));
    assert_eq!(service.cancel("p", &id), Err(EvaluationsError::NotFound));
    assert!(matches!(service.events("p", &id), Err(EvaluationsError::NotFound)));
    let query = EvaluationQuery { limit: 9, ..EvaluationQuery::default() };
    assert_eq!(service.list("p", &query).unwrap().json, "[]");
    assert_eq!(service.view("o", "../lock"), Err(EvaluationsError::NotFound));
}

#[test]
fn a_list_has_pages_and_filters_and_new_evaluations_do_not_shift_it() {
    let scene = Scene::new(9);
    let submit = || scene.service().submit("o", request(), None).unwrap();
    let ids: Vec<String> = (0..4).map(|_| submit()).collect();
    let begun: Vec<_> = (0..4).map(|_| scene.begun()).collect();
    begun.iter().find(|begun| begun.id == ids[2]).unwrap().end(Resolved);
    let events = scene.service().events("o", &ids[2]).unwrap();
    while events.progress.has_changed().is_ok() {
        std::thread::yield_now();
    }
    let list = |query: &EvaluationQuery| {
        let page = scene.service().list("o", query).unwrap();
        let lines: Vec<serde_json::Value> = serde_json::from_str(&page.json).unwrap();
        let ids: Vec<String> =
            lines.iter().map(|line| line["eval_id"].as_str().unwrap().to_owned()).collect();
        (ids, page.next_cursor)
    };
    let all = EvaluationQuery { limit: 2, ..EvaluationQuery::default() };
    let (first, cursor) = list(&all);
    assert_eq!(first, [ids[3].clone(), ids[2].clone()]);
    submit();
    let (second, cursor) = list(&EvaluationQuery { cursor, ..all.clone() });
    assert_eq!((second, cursor), (vec![ids[1].clone(), ids[0].clone()], None));
    let label = |value: &str| Some(("k".to_owned(), value.to_owned()));
    for (query, count) in [
        (EvaluationQuery { status: Some(EvaluationStatus::Completed), ..all.clone() }, 1),
        (EvaluationQuery { verdict: Some(Resolved), ..all.clone() }, 1),
        (EvaluationQuery { verdict: Some(Unresolved), ..all.clone() }, 0),
        (EvaluationQuery { label: label("v"), limit: 9, ..all.clone() }, 5),
        (EvaluationQuery { label: label("w"), ..all.clone() }, 0),
    ] {
        assert_eq!(list(&query).0.len(), count, "{query:?}");
    }
    let wrong = EvaluationQuery { cursor: Some("zz".to_owned()), ..all };
    assert!(matches!(scene.service().list("o", &wrong), Err(EvaluationsError::Invalid { .. })));
}

#[test]
fn a_cancelled_evaluation_ends_as_cancelled_and_an_ended_one_says_so() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    scene.begun();
    assert!(!scene.service().cancel("o", &id).unwrap().had_ended);
    scene.idle();
    assert_eq!(scene.view(&id)["verdict"], "cancelled");
    let again = scene.service().cancel("o", &id).unwrap();
    assert!(again.had_ended && again.status == EvaluationStatus::Cancelled);
    assert_eq!(scene.service().patch("o", &id), Err(EvaluationsError::NotFound));
    assert_eq!(scene.service().counts().cancelled, 1);
}

#[test]
fn a_drain_refuses_new_work_and_then_cancels() {
    let scene = Scene::new(2);
    let id = scene.service().submit("o", request(), None).unwrap();
    scene.begun();
    scene.service().start_draining();
    let refused = scene.service().submit("o", request(), None);
    assert!(matches!(refused, Err(EvaluationsError::Draining { .. })));
    let soon = cofferdam_core::values::deadline::Deadline::after(std::time::Duration::ZERO);
    assert!(!scene.service().wait_idle(soon), "what runs may go on");
    scene.service().cancel_all();
    scene.idle();
    assert_eq!(scene.view(&id)["verdict"], "cancelled");
}

#[test]
fn output_events_beyond_the_limit_are_dropped_with_one_note_and_others_stay() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    let records = &scene.service().shared().records;
    let record = scene.service().shared().floor().index.get(&id).unwrap().clone();
    scene.begun().end(Resolved);
    scene.idle();
    std::fs::write(scene.record(&id).join("events.jsonl"), "").unwrap();
    let log = EventLog::new(&id).with_output_max(100);
    let live = LiveEvaluation::new(record, log);
    for _ in 0..9 {
        live.log().output(records, EvaluationStep::RunningTests, None, &"x".repeat(60));
    }
    live.log().append(records, "step", &serde_json::json!({"step": "cleanup"}));
    live.log().end(records, b"{}").unwrap();
    let all = lines(&mut scene.service().events("o", &id).unwrap());
    let kinds: Vec<_> = all.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["output", "output", "step", "result"]);
    assert!(all[1]["data"]["text"].as_str().unwrap().contains("dropped"));
}

#[test]
fn a_record_goes_after_the_session_and_the_retention() {
    let scene = Scene::new(1);
    let id = scene.service().submit("o", request(), None).unwrap();
    scene.begun().end(Resolved);
    scene.idle();
    let kept_for = scene.settings.session_timeout + scene.settings.retention;
    let now = std::time::SystemTime::now();
    scene.service().shared().remove_expired(now + kept_for - WAIT);
    assert_eq!(scene.view(&id)["verdict"], "resolved");
    scene.service().shared().remove_expired(now + kept_for + WAIT);
    assert_eq!(scene.service().view("o", &id), Err(EvaluationsError::NotFound));
    assert!(!scene.record(&id).exists());
}
