//! Batches.

use super::scene::{Scene, WAIT, batch, lines, request};
use crate::evaluation::result::EvaluationVerdict::{InfraError, Resolved, Unresolved};
use crate::evaluation::service::*;

fn with_secret(mut asked: BatchRequest) -> BatchRequest {
    for agent in &mut asked.agents {
        agent.agent_env.insert("KEY".to_owned(), "very-secret".to_owned());
    }
    asked
}

#[test]
fn a_batch_with_a_fault_is_refused_by_the_name_of_the_field() {
    let scene = Scene::new(1);
    let twice = BatchRequest {
        tasks: [batch(1, &[], 1).tasks, batch(1, &[], 1).tasks].concat(),
        ..batch(1, &["a"], 1)
    };
    for (asked, wrong) in [
        (batch(1, &["a", "a"], 1), "agents[1].name"),
        (batch(3, &["a"], 7), "repeat"),
        (batch(3, &["a"], u64::MAX), "repeat"),
        (batch(1, &["a"], 0), "repeat"),
        (batch(0, &["a"], 1), "tasks"),
        (batch(1, &[], 1), "agents"),
        (twice, "tasks[1].task_url"),
    ] {
        match scene.service().submit_batch("o", asked, None) {
            Err(EvaluationsError::Invalid { field, .. }) => assert_eq!(field, wrong),
            other => panic!("{wrong}: {other:?}"),
        }
    }
    *scene.evaluator.refusal.lock().unwrap() = Some(EvaluationsError::invalid("agent_hosts", "no"));
    let refused = scene.service().submit_batch("o", batch(1, &["a"], 1), None);
    assert_eq!(refused, Err(EvaluationsError::invalid("agents[0].agent_hosts", "no")));
}

#[test]
fn a_batch_runs_every_agent_on_every_task_and_sums_up() {
    let scene = Scene::new(3);
    let sent = scene.service().submit_batch("o", batch(2, &["a", "b"], 2), None).unwrap();
    assert_eq!(sent.eval_ids.len(), 8);
    for index in 0..8 {
        let verdict = match index {
            0 => InfraError,
            1..4 => Unresolved,
            _ => Resolved,
        };
        scene.begun().end(verdict);
    }
    scene.idle();
    let sum = scene.batch(&sent.batch_id);
    assert_eq!((&sum["status"], &sum["total"]), (&"done".into(), &8.into()));
    assert_eq!(
        sum["verdicts"],
        serde_json::json!({"resolved": 4, "unresolved": 3, "infra_error": 1})
    );
    assert!((sum["resolved_rate"].as_f64().unwrap() - 4.0 / 7.0).abs() < 1e-9);
    assert_eq!(sum["evaluations"].as_array().unwrap().len(), 8);
    assert_eq!(
        (&sum["agents"]["a"]["total"], &sum["tasks"]["https://h/1"]["flaky"]),
        (&4.into(), &true.into())
    );
    assert_eq!(scene.service().batch("p", &sent.batch_id), Err(EvaluationsError::NotFound));
}

#[test]
fn items_leave_a_slot_to_direct_requests_and_turns_go_from_token_to_token() {
    let scene = Scene::new(2);
    let first = scene.service().submit_batch("o", batch(2, &["a"], 1), None).unwrap();
    let begun = scene.begun();
    let other = scene.service().submit_batch("p", batch(1, &["a"], 1), None).unwrap();
    let direct = scene.service().submit("o", request(), None).unwrap();
    assert_eq!(scene.begun().id, direct, "one slot is left");
    begun.end(Resolved);
    assert_eq!(scene.begun().id, other.eval_ids[0], "the other token's turn");
    let waits = scene.view(&first.eval_ids[1]);
    assert_eq!((&waits["status"], &waits["step"]), (&"pending".into(), &"queued".into()));
}

#[test]
fn variables_lie_in_a_private_file_until_the_last_item_of_the_agent_has_begun() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new(1);
    let sent = scene.service().submit_batch("o", with_secret(batch(2, &["a"], 1)), None).unwrap();
    let begun = scene.begun();
    assert_eq!(begun.request.agent_env["KEY"], "very-secret");
    assert!(scene.holds("very-secret"), "one item waits");
    let file = scene.record("batches").join(&sent.batch_id).join("env-0");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    begun.end(Resolved);
    let begun = scene.begun();
    assert_eq!(begun.request.agent_env["KEY"], "very-secret");
    assert!(!scene.holds("very-secret"), "no item waits");
}

#[test]
fn a_cancelled_item_that_waits_ends_at_once_and_its_follower_gets_the_result() {
    let scene = Scene::new(1);
    let sent = scene.service().submit_batch("o", with_secret(batch(3, &["a"], 1)), None).unwrap();
    scene.begun();
    let (followed, silent) = (&sent.eval_ids[1], &sent.eval_ids[2]);
    let mut events = scene.service().events("o", followed).unwrap();
    for id in [followed, silent] {
        assert!(!scene.service().cancel("o", id).unwrap().had_ended);
        assert_eq!(scene.view(id)["verdict"], "cancelled");
        assert_eq!(scene.view(id)["failure"]["code"], "evaluation.cancelled");
        assert!(scene.service().cancel("o", id).unwrap().had_ended);
    }
    assert_eq!(lines(&mut events)[0]["event"], "result");
    assert!(events.progress.borrow().ended && events.progress.has_changed().is_err());
    let mut late = scene.service().events("o", silent).unwrap();
    assert_eq!(lines(&mut late)[0]["data"]["verdict"], "cancelled");
    assert!(!scene.holds("very-secret"), "no item waits");
}

#[test]
fn a_cancelled_batch_ends_and_stays_so_after_a_restart() {
    let scene = Scene::new(1);
    let sent = scene.service().submit_batch("o", batch(4, &["a"], 1), None).unwrap();
    scene.begun();
    scene.service().cancel_batch("o", &sent.batch_id).unwrap();
    scene.idle();
    let scene = &scene;
    for scene in [scene, &scene.after_kill(1)] {
        let sum = scene.batch(&sent.batch_id);
        assert_eq!(sum["status"], "cancelled");
        assert_eq!(sum["verdicts"], serde_json::json!({"cancelled": 4}));
        assert_eq!(sum["resolved_rate"], serde_json::Value::Null);
    }
    assert!(scene.begun.try_recv().is_err(), "nothing else began");
}

#[test]
fn a_batch_goes_as_a_whole_after_the_retention() {
    let scene = Scene::new(1);
    let sent = scene.service().submit_batch("o", batch(1, &["a"], 1), None).unwrap();
    scene.begun().end(Resolved);
    scene.idle();
    let kept_for = scene.settings.session_timeout + scene.settings.retention;
    scene.service().shared().remove_expired(std::time::SystemTime::now() + kept_for + WAIT);
    assert_eq!(scene.service().batch("o", &sent.batch_id), Err(EvaluationsError::NotFound));
    let scene = scene.after_kill(1);
    assert_eq!(scene.service().view("o", &sent.eval_ids[0]), Err(EvaluationsError::NotFound));
    assert!(scene.begun.try_recv().is_err());
}
