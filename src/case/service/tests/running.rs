//! Runs, turns, cancellations.

use super::scene::{
    cells_of, events_of, exists, scene, text_of, wait_ended, wait_for, wait_status,
};
use crate::case::service::{CaseCellCounts, CaseRunQuery, CaseRunStatus, CaseRuns, CaseRunsError};
use cofferdam_core::values::deadline::Deadline;
use std::time::Duration;

#[test]
fn a_run_is_done_when_its_cells_are_and_its_documents_have_all_of_them() {
    let scene = scene();
    let service = scene.service();
    assert!(!exists(&scene.store()), "a store without a run");
    let submitted = service.submit("t", scene.request("c", 2), None).unwrap();
    assert_eq!(submitted.status, CaseRunStatus::Queued);
    let id = submitted.run_id;
    let view = wait_ended(&service, "t", &id);
    assert_eq!(view.status, CaseRunStatus::Done);
    assert_eq!(view.cells, CaseCellCounts { done: 4, ..CaseCellCounts::default() });
    assert_eq!((view.passed, view.not_passed), (2, 2));
    assert!(view.started_at.is_some() && view.finished_at.is_some() && view.error.is_none());

    let cells = cells_of(&service, &id);
    let ids: Vec<&str> = cells.iter().map(|cell| cell["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c__nop__m__t1", "c__nop__m__t2", "c__mine__m__t1", "c__mine__m__t2"]);
    assert!(cells.iter().all(|cell| cell["status"] == "done" && cell["attempt"] == 1));
    assert!(text_of(service.junit("t", &id)).contains("c__mine__m__t2"));
    assert!(text_of(service.report("t", &id)).starts_with("<!"));

    let events = events_of(&service, &id);
    let numbers: Vec<u64> = events.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let names: Vec<&str> = events.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["status", "status"]);
    assert_eq!(names.iter().filter(|name| **name == "cell").count(), 8);
    let (_, last, data) = events.last().unwrap();
    assert_eq!(
        (last.as_str(), &data["status"], &data["cells"]["done"]),
        ("result", &"done".into(), &4.into())
    );
    assert!(service.events("t", &id).unwrap().progress.borrow().ended);

    let counts = service.counts();
    assert_eq!((counts.runs_done_total, counts.cells_passed_total), (1, 2));
    assert_eq!((counts.cells_not_passed_total, counts.cells_running), (2, 0));
}

#[test]
fn the_documents_of_a_live_run_have_the_results_so_far() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let id = scene.submit(&service, "t", 3);
    scene.script.release(1);
    scene.script.wait_begun(2);
    let cells = CaseCellCounts { done: 1, running: 1, pending: 1, ..CaseCellCounts::default() };
    assert_eq!(service.view("t", &id).unwrap().cells, cells);
    let statuses: Vec<_> =
        cells_of(&service, &id).iter().map(|cell| cell["status"].clone()).collect();
    assert_eq!(statuses, ["done", "running", "pending"]);
    let before = text_of(service.junit("t", &id));
    assert!(text_of(service.report("t", &id)).contains("c__nop__m__t1"));
    assert!(!service.events("t", &id).unwrap().progress.borrow().ended);
    scene.script.release(1);
    scene.script.wait_begun(3);
    assert_ne!(text_of(service.junit("t", &id)), before);
    scene.script.release_all();
    assert_eq!(wait_ended(&service, "t", &id).status, CaseRunStatus::Done);
}

#[test]
fn a_run_of_another_token_is_not_found() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let id = scene.submit(&service, "t", 1);
    let missing = Some(CaseRunsError::NotFound);
    assert_eq!(service.view("u", &id).err(), missing);
    assert_eq!(service.results("u", &id).err(), missing);
    assert_eq!(service.junit("u", &id).err(), missing);
    assert_eq!(service.report("u", &id).err(), missing);
    assert_eq!(service.events("u", &id).err(), missing);
    assert_eq!(service.cancel("u", &id).err(), missing);
    assert_eq!(service.view("t", "run_x").err(), missing);
    let query = CaseRunQuery { limit: 10, ..CaseRunQuery::default() };
    assert!(service.list("u", &query).unwrap().runs.is_empty());
    assert_eq!(service.list("t", &query).unwrap().runs.len(), 1);
}

#[test]
fn a_free_worker_goes_to_the_token_with_the_fewest_running_cells() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service_with(|settings| settings.workers = 2);
    scene.submit(&service, "busy", 6);
    scene.script.wait_begun(2);
    scene.submit(&service, "busy", 2);
    scene.submit(&service, "late", 2);
    for (ended, count) in [("busy", 3), ("late", 4), ("late", 5)] {
        scene.script.release_of(ended);
        scene.script.wait_begun(count);
    }
    let begun = scene.script.begun();
    let owners: Vec<&str> = begun.iter().map(|(owner, _)| owner.as_str()).collect();
    assert_eq!(owners, ["busy", "busy", "late", "late", "busy"]);
    scene.script.release_all();
}

#[test]
fn no_more_cells_run_than_there_are_workers() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service_with(|settings| settings.workers = 3);
    for owner in ["a", "b"] {
        scene.submit(&service, owner, 4);
    }
    scene.script.wait_begun(3);
    assert_eq!(service.counts().cells_running, 3);
    for count in 4..=8 {
        scene.script.release(1);
        scene.script.wait_begun(count);
        assert!(scene.script.running() <= 3);
    }
    scene.script.release_all();
}

#[test]
fn a_waiting_run_is_canceled_at_once_and_a_running_one_when_its_cells_have_ended() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let (running, waiting) = (scene.submit(&service, "t", 3), scene.submit(&service, "t", 1));
    scene.script.wait_begun(1);

    let answer = service.cancel("t", &waiting).unwrap();
    assert_eq!((answer.status, answer.had_ended), (CaseRunStatus::Canceled, false));
    let view = service.view("t", &waiting).unwrap();
    assert_eq!((view.status, view.cells.pending, view.error), (CaseRunStatus::Canceled, 1, None));
    assert_eq!(events_of(&service, &waiting).last().unwrap().1, "result");
    assert_eq!(cells_of(&service, &waiting)[0]["status"], "pending");

    assert!(!service.cancel("t", &running).unwrap().had_ended);
    let view = wait_ended(&service, "t", &running);
    assert_eq!((view.status, view.cells.pending), (CaseRunStatus::Canceled, 3));
    assert_eq!(scene.script.running(), 0);
    assert_eq!(scene.script.begun().len(), 1);
    let again = service.cancel("t", &running).unwrap();
    assert_eq!((again.status, again.had_ended), (CaseRunStatus::Canceled, true));
    assert_eq!(service.counts().runs_canceled_total, 2);
    // The worker is free again.
    scene.script.release_all();
    let next = scene.submit(&service, "t", 1);
    assert_eq!(wait_ended(&service, "t", &next).status, CaseRunStatus::Done);
}

#[test]
fn a_draining_service_lets_cells_end_and_begins_none() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let id = scene.submit(&service, "t", 2);
    scene.script.wait_begun(1);
    service.start_draining();
    let refused = service.submit("t", scene.request("c", 1), None).err();
    assert!(matches!(refused, Some(CaseRunsError::Draining { .. })), "{refused:?}");
    assert!(!service.wait_idle(Deadline::after(Duration::from_millis(50))));
    scene.script.release_all();
    assert!(service.wait_idle(Deadline::after(Duration::from_secs(60))));
    let cells = service.view("t", &id).unwrap().cells;
    assert_eq!((cells.done, cells.pending), (1, 1));
    assert_eq!(scene.script.begun().len(), 1);
}

#[test]
fn a_worker_that_breaks_off_ends_its_run_and_no_other() {
    let scene = scene();
    scene.script.let_panic();
    let service = scene.service();
    let id = scene.submit(&service, "t", 2);
    let view = wait_ended(&service, "t", &id);
    assert_eq!(view.status, CaseRunStatus::Canceled);
    assert_eq!(view.error.unwrap().code, "case.store_failed");
    wait_for(|| service.counts().runs_running == 0);
    assert!(service.wait_idle(Deadline::after(Duration::from_secs(60))));
}

#[test]
fn a_list_is_paged_from_the_newest_and_by_status() {
    let scene = scene();
    let service = scene.service();
    let ids: Vec<String> = (0..5).map(|_| scene.submit(&service, "t", 1)).collect();
    ids.iter().for_each(|id| wait_status(&service, id, CaseRunStatus::Done));
    let mut query = CaseRunQuery { limit: 2, ..CaseRunQuery::default() };
    let mut listed = Vec::new();
    loop {
        let page = service.list("t", &query).unwrap();
        listed.extend(page.runs.into_iter().map(|run| run.run_id));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    let newest: Vec<String> = ids.into_iter().rev().collect();
    assert_eq!(listed, newest);
    let query = CaseRunQuery { status: Some(CaseRunStatus::Queued), limit: 2, cursor: None };
    assert!(service.list("t", &query).unwrap().runs.is_empty());
    let query = CaseRunQuery { cursor: Some("x".to_owned()), ..query };
    assert_eq!(service.list("t", &query).unwrap_err().code(), "validation.invalid_request");
}
