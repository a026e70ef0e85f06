//! A service that goes on with what another has left.

use std::fs;

use super::scene::{
    case_yaml, cells_of, events_of, exists, request_of, scene, wait_ended, wait_for,
};
use crate::case::run::{
    CellFilter, CellResult, CellStatus, NewRun, RunDigests, RunFolder, RunOptions, plan_cells,
};
use crate::case::service::{CaseInput, CaseRunStatus, CaseRuns};
use cofferdam_core::job::JobId;

#[test]
fn a_run_goes_on_where_the_last_service_ended() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let (first, second) = (scene.submit(&service, "t", 3), scene.submit(&service, "t", 1));
    scene.script.release(1);
    scene.script.wait_begun(2);
    drop(service);
    assert_eq!(scene.script.running(), 0);
    // A killed service leaves results that say that a Cell runs, and half a line of events.
    let folder = RunFolder::open(&scene.store()).unwrap().unwrap();
    let run = folder.lock(&first).unwrap();
    let running = CellResult::of(&run.manifest().cells[1], 1, CellStatus::Running);
    run.finish(&running).unwrap();
    drop(run);
    let events = scene.store().join("cases").join(&first).join("events.jsonl");
    let text = fs::read_to_string(&events).unwrap();
    fs::write(&events, format!("{text}{{\"id\":")).unwrap();

    let service = scene.service();
    let cells = service.view("t", &first).unwrap().cells;
    assert_eq!((cells.done, cells.done + cells.pending + cells.running), (1, 3));
    scene.script.release_all();
    let view = wait_ended(&service, "t", &first);
    assert_eq!((view.status, view.cells.done), (CaseRunStatus::Done, 3));
    let attempts: Vec<_> =
        cells_of(&service, &first).iter().map(|cell| cell["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 2, 1]);
    let events = events_of(&service, &first);
    let numbers: Vec<u64> = events.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.iter().filter(|(_, name, _)| name == "result").count(), 1);
    assert_eq!(wait_ended(&service, "t", &second).status, CaseRunStatus::Done);
}

#[test]
fn an_ended_run_is_known_to_the_next_service() {
    let scene = scene();
    let service = scene.service();
    let id = scene.submit(&service, "t", 2);
    let before = wait_ended(&service, "t", &id);
    let events = events_of(&service, &id);
    drop(service);
    let service = scene.service();
    assert_eq!(service.view("t", &id).unwrap(), before);
    assert_eq!(events_of(&service, &id), events);
    assert_eq!(cells_of(&service, &id).len(), 2);
    assert_eq!(scene.script.begun().len(), 2);
}

#[test]
fn a_canceled_run_is_not_resumed() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let id = scene.submit(&service, "t", 2);
    scene.script.wait_begun(1);
    service.cancel("t", &id).unwrap();
    drop(service);
    let service = scene.service();
    let view = wait_ended(&service, "t", &id);
    assert_eq!((view.status, view.cells.pending), (CaseRunStatus::Canceled, 2));
    assert_eq!(scene.script.begun().len(), 1);
    assert_eq!(events_of(&service, &id).last().unwrap().1, "result");
}

#[test]
fn a_run_of_the_command_line_is_left_alone() {
    let scene = scene();
    let folder = RunFolder::open_or_create(&scene.store()).unwrap();
    let path = scene.path().join("cases/c/case.yaml");
    let yaml = fs::read(&path).unwrap();
    let matrix = crate::case::file::load_case(&path).unwrap().case.matrix;
    let run = folder
        .create(&NewRun {
            id: JobId::parse("mine").unwrap(),
            case_path: &path,
            case_yaml: &yaml,
            case: "c",
            digests: RunDigests::of(&yaml, ""),
            options: RunOptions::default(),
            cells: plan_cells("c", &matrix, &CellFilter::default()).unwrap(),
        })
        .unwrap();
    drop(run);
    let service = scene.service();
    let id = scene.submit(&service, "t", 1);
    wait_ended(&service, "t", &id);
    assert!(service.view("t", "mine").is_err());
    drop(service);
    let run = folder.lock("mine").unwrap();
    let result = run.result(&run.manifest().cells[0]).unwrap();
    assert_eq!((result.end.status, result.attempt), (CellStatus::Pending, 0));
}

#[test]
fn a_case_or_source_that_changed_ends_its_run() {
    let scene = scene();
    scene.script.hold();
    scene.script.set_digest("a");
    let service = scene.service();
    let running = scene.submit(&service, "t", 2);
    scene.script.wait_begun(1);
    let waiting = service.submit("t", scene.request("c", 1), None).unwrap().run_id;
    fs::write(scene.path().join("cases/c/case.yaml"), case_yaml("c", "description: d\n")).unwrap();
    service.cancel("t", &running).unwrap();
    let view = wait_ended(&service, "t", &waiting);
    assert_eq!(view.status, CaseRunStatus::Canceled);
    assert_eq!(view.error.unwrap().code, "case.changed");
    assert_eq!(scene.script.begun().len(), 1);

    let by_source = scene.submit(&service, "t", 2);
    scene.script.wait_begun(2);
    drop(service);
    scene.script.set_digest("b");
    let service = scene.service();
    let view = wait_ended(&service, "t", &by_source);
    let error = view.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("case.changed", "the source changed")
    );
    let data = events_of(&service, &by_source).pop().unwrap().2;
    assert_eq!(data["error"]["code"], "case.changed");
}

#[test]
fn a_case_that_was_sent_is_still_there_after_a_restart() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    let upload = service.stage().unwrap();
    fs::write(upload.path().join("case.yaml"), case_yaml("u", "")).unwrap();
    let mut request = request_of("/".into(), 1);
    request.input = CaseInput::Staged(upload);
    let id = service.submit("t", request, None).unwrap().run_id;
    scene.script.wait_begun(1);
    let left = service.stage().unwrap();
    // A killed service removes nothing.
    let half = scene.store().join("cases/.new-0123");
    fs::create_dir(&half).unwrap();
    drop((left, service));
    scene.script.release_all();
    let service = scene.service();
    assert_eq!(wait_ended(&service, "t", &id).status, CaseRunStatus::Done);
    assert!(!exists(&scene.store().join("cases").join(&id).join("input")));
    scene.submit(&service, "t", 1);
    wait_for(|| !exists(&half));
}
